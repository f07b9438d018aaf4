// Small files of images in every format, as bytes, for the tests of the readers.
#pragma once

#include <zlib.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "trainer/data/assemble.hpp"
#include "trainer/data/cifar.hpp"
#include "trainer/data/gzip.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/data/pack.hpp"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace trainer {

using Bytes = std::vector<std::uint8_t>;

inline Bytes random_bytes(std::size_t count, unsigned seed, unsigned below = 256) {
  std::mt19937 random(seed);
  Bytes bytes(count);
  for (auto& byte : bytes) byte = static_cast<std::uint8_t>(random() % below);
  return bytes;
}

inline void append_big_endian(Bytes& to, std::uint32_t value) {
  for (int shift = 24; shift >= 0; shift -= 8) to.push_back(static_cast<std::uint8_t>(value >> shift));
}

inline Bytes idx_images(std::uint32_t count, std::uint32_t height, std::uint32_t width,
                        const Bytes& content) {
  Bytes file;
  for (const std::uint32_t number : {0x803u, count, height, width}) append_big_endian(file, number);
  file.insert(file.end(), content.begin(), content.end());
  return file;
}

inline Bytes idx_labels(const Bytes& labels) {
  Bytes file;
  append_big_endian(file, 0x801u);
  append_big_endian(file, static_cast<std::uint32_t>(labels.size()));
  file.insert(file.end(), labels.begin(), labels.end());
  return file;
}

inline Bytes gzipped(const Bytes& content) {
  z_stream stream{};
  if (::deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  Bytes file(::deflateBound(&stream, content.size()));
  stream.next_in = const_cast<Bytef*>(content.data());
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = file.data();
  stream.avail_out = static_cast<uInt>(file.size());
  if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  file.resize(stream.total_out);
  ::deflateEnd(&stream);
  return file;
}

// `dictionary` as numpy writes it, padded to a multiple of 64 bytes.
inline Bytes npy(const std::string& dictionary, const Bytes& content, int version = 1) {
  std::string head = "\x93NUMPY";
  head += static_cast<char>(version);
  head += '\0';
  const std::size_t length_bytes = version == 1 ? 2 : 4;
  std::string text = dictionary;
  while ((head.size() + length_bytes + text.size() + 1) % 64 != 0) text += ' ';
  text += '\n';
  for (std::size_t i = 0; i < length_bytes; ++i) head += static_cast<char>(text.size() >> 8 * i & 0xff);
  head += text;
  Bytes file(head.begin(), head.end());
  file.insert(file.end(), content.begin(), content.end());
  return file;
}

inline std::string npy_dictionary(const std::string& type, const std::string& shape) {
  return "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
}

inline Bytes cifar(std::size_t records, unsigned seed) {
  Bytes file = random_bytes(records * kCifarRecord, seed);
  for (std::size_t i = 0; i < records; ++i) file[i * kCifarRecord] %= 10;
  return file;
}

// The checksum at the end of a packed file made right again, after a change.
inline void seal(Bytes& pack) {
  const std::uint64_t sum = XXH64(pack.data(), pack.size() - 8, 0);
  for (std::size_t i = 0; i < 8; ++i) pack[pack.size() - 8 + i] = static_cast<std::uint8_t>(sum >> 8 * i);
}

inline Bytes packed(const Dataset& data) {
  const PackLayout layout = pack_layout(data.shape, data.train.size(), data.test.size());
  Bytes file = pack_header(data, data.train.size(), data.test.size());
  file.resize(layout.bytes);
  const auto put = [&](std::size_t at, std::span<const std::uint8_t> bytes) {
    std::copy(bytes.begin(), bytes.end(), file.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(layout.train_images, data.train.images);
  put(layout.test_images, data.test.images);
  put(layout.train_labels, data.train.labels);
  put(layout.test_labels, data.test.labels);
  seal(file);
  return file;
}

// A data set of random bytes.
inline Dataset random_dataset(std::size_t train, std::size_t test, ImageShape shape, int classes) {
  struct Kept {
    Bytes train, test, train_labels, test_labels;
  };
  auto kept = std::make_shared<Kept>();
  kept->train = random_bytes(train * shape.pixels(), 1);
  kept->test = random_bytes(test * shape.pixels(), 2);
  kept->train_labels = random_bytes(train, 3, static_cast<unsigned>(classes));
  kept->test_labels = random_bytes(test, 4, static_cast<unsigned>(classes));
  Part train_part{
      .shape = shape, .images = kept->train, .labels = kept->train_labels, .labels_file = "train"};
  Part test_part{.shape = shape, .images = kept->test, .labels = kept->test_labels, .labels_file = "test"};
  auto data = assemble("random", train_part, test_part, classes, kept);
  if (!data) std::abort();
  return *data;
}

}  // namespace trainer
