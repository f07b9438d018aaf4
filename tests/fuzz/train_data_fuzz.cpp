// Any bytes as a file of any format of images. The first byte says which; what is taken must lie within what
// was given.
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "trainer/data/cifar.hpp"
#include "trainer/data/gzip.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/data/pack.hpp"

namespace {

using namespace trainer;
using Bytes = std::vector<std::uint8_t>;

void check(bool condition) {
  if (!condition) std::abort();
}

void read_idx(const Bytes& file, IdxKind kind) {
  auto idx = parse_idx(file, kind);
  if (idx) check(idx->content.size() == idx->count * idx->shape.pixels());
}

void read_gzip(const Bytes& file, IdxKind kind) {
  std::size_t promised = 0;
  auto content = expand_gzip(file, idx_header_bytes(kind),
                             [&](std::span<const std::uint8_t> head) -> Result<std::size_t> {
                               auto idx = parse_idx_header(head, kind);
                               if (!idx) return idx.error();
                               return promised = idx->promised_bytes;
                             });
  if (!content) return;
  check(content->size() == promised);
  read_idx(*content, kind);
}

void read_npy(const Bytes& file) {
  auto array = parse_npy(file);
  if (!array) return;
  Bytes moved, narrowed;
  if (auto images = npy_images(*array, moved)) check(images->images.size() == array->content.size());
  if (auto labels = npy_labels(*array, narrowed)) check(labels->size() == array->shape[0]);
}

// With the checksum made right, or nothing would get past it; the header is spared what is always zero.
void read_pack(const Bytes& input) {
  if (input.size() < 80) return;
  Bytes file(input.begin(), input.begin() + 72);
  file.resize(kPackPage);
  file.insert(file.end(), input.begin() + 72, input.end());
  file.resize(file.size() + kPackPage * (input[72] % 4));
  const std::uint64_t sum = XXH64(file.data(), file.size() - 8, 0);
  for (std::size_t i = 0; i < 8; ++i) file[file.size() - 8 + i] = static_cast<std::uint8_t>(sum >> 8 * i);
  auto data = parse_pack(file);
  if (!data) return;
  for (const Split& split : {data->train, data->test}) {
    check(split.images.size() == split.size() * data->shape.pixels());
    std::uint64_t all = 0;
    for (const std::uint8_t byte : split.images) all += byte;
    for (const std::uint8_t label : split.labels) check(label < data->classes);
    check(all <= 255 * split.images.size());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  // A copy of its own, so that a byte read beyond it is found.
  const Bytes file(data + 1, data + size);
  Bytes images, labels;
  switch (data[0] % 7) {
    case 0:
      read_idx(file, IdxKind::images);
      break;
    case 1:
      read_idx(file, IdxKind::labels);
      break;
    case 2:
      read_gzip(file, IdxKind::images);
      break;
    case 3:
      read_gzip(file, IdxKind::labels);
      break;
    case 4:
      read_npy(file);
      break;
    case 5:
      (void)parse_cifar(file, file.size() / kCifarRecord, images, labels);
      break;
    case 6:
      read_pack(file);
      break;
  }
  return 0;
}
