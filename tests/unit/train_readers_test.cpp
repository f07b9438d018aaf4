#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <random>

#include "../image_bytes.hpp"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Reads a whole file of one format; empty if it was taken, else what was wrong. Fails if what is taken does
// not lie inside the file.
using Reader = std::function<std::string(const Bytes&)>;

bool lies_inside(std::span<const std::uint8_t> part, std::span<const std::uint8_t> whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

Reader idx_reader(IdxKind kind) {
  return [kind](const Bytes& file) -> std::string {
    auto idx = parse_idx(file, kind);
    if (!idx) return idx.error().text;
    EXPECT_TRUE(lies_inside(idx->content, file));
    EXPECT_EQ(idx->content.size(), idx->count * idx->shape.pixels());
    return "";
  };
}

Result<Bytes> expand_idx(const Bytes& file, IdxKind kind) {
  return expand_gzip(file, idx_header_bytes(kind),
                     [&](std::span<const std::uint8_t> head) -> Result<std::size_t> {
                       auto idx = parse_idx_header(head, kind);
                       if (!idx) return idx.error();
                       return idx->promised_bytes;
                     });
}

std::string read_gzip(const Bytes& file) {
  auto content = expand_idx(file, IdxKind::images);
  return content ? idx_reader(IdxKind::images)(*content) : content.error().text;
}

std::string read_npy_images(const Bytes& file) {
  auto array = parse_npy(file);
  if (!array) return array.error().text;
  EXPECT_TRUE(lies_inside(array->content, file));
  Bytes moved;
  auto images = npy_images(*array, moved);
  if (!images) return images.error().text;
  EXPECT_TRUE(lies_inside(images->images, file) || lies_inside(images->images, moved));
  EXPECT_EQ(images->images.size() % images->shape.pixels(), 0u);
  return "";
}

std::string read_npy_labels(const Bytes& file) {
  auto array = parse_npy(file);
  if (!array) return array.error().text;
  Bytes narrowed;
  auto labels = npy_labels(*array, narrowed);
  if (!labels) return labels.error().text;
  EXPECT_EQ(labels->size(), array->shape[0]);
  return "";
}

std::string read_cifar(const Bytes& file) {
  Bytes images, labels;
  auto fine = parse_cifar(file, 2, images, labels);
  return fine ? "" : fine.error().text;
}

std::string read_pack(const Bytes& file) {
  auto data = parse_pack(file);
  if (!data) return data.error().text;
  for (const Split& split : {data->train, data->test}) {
    EXPECT_TRUE(lies_inside(split.images, file));
    EXPECT_TRUE(lies_inside(split.labels, file));
    EXPECT_EQ(split.images.size(), split.size() * data->shape.pixels());
  }
  return "";
}

struct Format {
  const char* name;
  Bytes file;
  Reader read;
};

std::vector<Format> formats() {
  const Bytes pixels = random_bytes(5 * 4 * 3, 1);
  const Bytes wide_labels = [] {
    Bytes bytes(5 * 8);
    for (std::size_t i = 0; i < 5; ++i) bytes[i * 8] = static_cast<std::uint8_t>(i);
    return bytes;
  }();
  return {
      {"IDX images", idx_images(5, 4, 3, pixels), idx_reader(IdxKind::images)},
      {"IDX labels", idx_labels({3, 1, 4, 1, 5}), idx_reader(IdxKind::labels)},
      {"IDX images.gz", gzipped(idx_images(5, 4, 3, pixels)), read_gzip},
      {"npy images", npy(npy_dictionary("|u1", "(5, 4, 3)"), pixels), read_npy_images},
      {"npy images, channels last", npy(npy_dictionary("|u1", "(5, 2, 2, 3)"), pixels, 3), read_npy_images},
      {"npy labels", npy(npy_dictionary("<i8", "(5,)"), wide_labels, 2), read_npy_labels},
      {"CIFAR", cifar(2, 1), read_cifar},
      {"pack", packed(random_dataset(7, 3, {3, 5, 4}, 10)), read_pack},
  };
}

TEST(Readers, TakeAWholeFileAndRefuseItCutAnywhere) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    ASSERT_EQ(format.read(format.file), "");
    for (std::size_t size = 0; size < format.file.size(); ++size) {
      // A buffer of that size exactly, so that a byte read beyond it is found.
      const std::string wrong =
          format.read(Bytes(format.file.begin(), format.file.begin() + std::ptrdiff_t(size)));
      ASSERT_THAT(wrong, HasSubstr("byte ")) << size;
    }
  }
}

TEST(Readers, RefuseAFileThatGoesOn) {
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    Bytes longer = format.file;
    longer.push_back(0);
    EXPECT_THAT(format.read(longer), HasSubstr("byte "));
  }
}

TEST(Readers, SurviveAnyFlippedBits) {
  std::mt19937 random(3);
  for (const Format& format : formats()) {
    SCOPED_TRACE(format.name);
    for (int round = 0; round < 4000; ++round) {
      Bytes file = format.file;
      // Mostly near the front, where what is read decides what is read next.
      const std::size_t reach = round % 4 == 0 ? file.size() : std::min<std::size_t>(file.size(), 128);
      for (unsigned flips = 1 + random() % 3; flips > 0; --flips) {
        file[random() % reach] ^= static_cast<std::uint8_t>(1u << random() % 8);
      }
      format.read(file);
    }
  }
}

TEST(Readers, SurviveAnyHeaderOfAPackWithARightChecksum) {
  const Bytes whole = packed(random_dataset(7, 3, {3, 5, 4}, 10));
  std::mt19937 random(4);
  int taken = 0;
  for (int round = 0; round < 4000; ++round) {
    Bytes file = whole;
    file[8 + random() % 64] ^= static_cast<std::uint8_t>(1u << random() % 8);
    if (round % 2) file.resize(kPackPage + random() % (file.size() - kPackPage));
    seal(file);
    taken += read_pack(file).empty();
  }
  EXPECT_GT(taken, 0);  // of mean and deviation any number is one
  EXPECT_LT(taken, 2000);
}

TEST(Readers, SayWhereAGzipFileIsBroken) {
  Bytes file = gzipped(idx_images(50, 28, 28, random_bytes(50 * 28 * 28, 1)));
  file[file.size() - 6] ^= 1;  // the checksum of the content
  EXPECT_THAT(read_gzip(file), HasSubstr("incorrect data check"));
  EXPECT_THAT(read_gzip(gzipped(idx_images(5, 4, 3, random_bytes(59, 1)))),
              "in its content: byte 75: the content has 75 bytes, its header promises 76");
  EXPECT_THAT(read_gzip(gzipped(idx_images(5, 4, 3, random_bytes(61, 1)))),
              HasSubstr("goes on after the 76 bytes"));
}

TEST(Readers, AllocateForWhatIsThereAndNotForWhatIsPromised) {
  // Promises 200 million images of 8192 x 8192: a machine has no memory for them.
  const Bytes file = idx_images(200'000'000, 8192, 8192, Bytes(1000));
  EXPECT_THAT(idx_reader(IdxKind::images)(file), HasSubstr("its header promises 13421772800000016"));
  EXPECT_THAT(read_gzip(gzipped(file)), HasSubstr("its header promises 13421772800000016"));
  EXPECT_THAT(read_npy_images(npy(npy_dictionary("|u1", "(200000000, 8192, 8192)"), Bytes(1000))),
              HasSubstr("1000 bytes follow"));
  Bytes pack = packed(random_dataset(2, 1, {1, 2, 2}, 2));
  pack[35] = 0x0b;  // 11 << 24 training images more
  EXPECT_THAT(read_pack(pack), HasSubstr("its header promises 922759179"));
}

TEST(Readers, RefuseSizesBeyondTheLimits) {
  for (const auto& [count, height, width] :
       {std::tuple{0u, 4u, 3u}, {5u, 0u, 3u}, {5u, 4u, 0u}, {5u, 8193u, 3u}, {0xffffffffu, 4u, 3u}}) {
    EXPECT_THAT(idx_reader(IdxKind::images)(idx_images(count, height, width, {})), StartsWith("byte 4: "));
  }
  EXPECT_THAT(read_npy_images(npy(npy_dictionary("|u1", "(0, 4, 3)"), {})), HasSubstr("(0, 4, 3)"));
  EXPECT_THAT(read_npy_images(npy(npy_dictionary("|u1", "(1, 9000, 1)"), Bytes(9000))),
              HasSubstr("out of range"));
}

TEST(Readers, TellWhatAnIdxFileIsInstead) {
  EXPECT_THAT(idx_reader(IdxKind::images)(idx_labels(Bytes(16))),
              "byte 0: not an IDX file of images: it starts with 2049 instead of 2051");
  EXPECT_THAT(idx_reader(IdxKind::labels)(idx_images(1, 2, 2, Bytes(4))), HasSubstr("2051 instead of 2049"));
}

TEST(Readers, PutTheChannelsOfANumpyArrayFirst) {
  // Two images of 1 x 2 pixels in red, green, blue.
  const Bytes content{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const Bytes file = npy(npy_dictionary("|u1", "(2, 1, 2, 3)"), content);
  Bytes moved;
  auto array = parse_npy(file);
  ASSERT_TRUE(array);
  auto images = npy_images(*array, moved);
  ASSERT_TRUE(images);
  EXPECT_EQ(images->shape, (ImageShape{3, 1, 2}));
  EXPECT_EQ(Bytes(images->images.begin(), images->images.end()),
            (Bytes{1, 4, 2, 5, 3, 6, 7, 10, 8, 11, 9, 12}));

  const Bytes first = npy(npy_dictionary("|u1", "(2, 3, 1, 2)"), content);
  array = parse_npy(first);
  ASSERT_TRUE(array);
  images = npy_images(*array, moved);
  ASSERT_TRUE(images);
  EXPECT_EQ(images->shape, (ImageShape{3, 1, 2}));
  EXPECT_EQ(Bytes(images->images.begin(), images->images.end()), content);
}

TEST(Readers, RefuseWhatIsNoSuchNumpyArray) {
  const auto wrong = [](const std::string& dictionary) { return read_npy_images(npy(dictionary, Bytes(6))); };
  EXPECT_EQ(wrong("{\"shape\": (1, 2, 3), \"fortran_order\": False, \"descr\": \"|u1\"}"), "");  // any order
  EXPECT_THAT(wrong("{'descr': '|u1', 'fortran_order': True, 'shape': (1, 2, 3), }"), HasSubstr("Fortran"));
  EXPECT_THAT(wrong(npy_dictionary("<f4", "(1, 2, 3)")), HasSubstr("'<f4'"));
  EXPECT_THAT(wrong(npy_dictionary(">i4", "(1, 2, 3)")), HasSubstr("'>i4'"));
  EXPECT_THAT(wrong(npy_dictionary("|u1", "(6,)")), HasSubstr("not images"));
  for (const char* dictionary :
       {"", "{", "{}", "()", "{'descr': '|u1', 'fortran_order': False}",
        "{'descr': '|u1' 'fortran_order': False, 'shape': (1, 2, 3)}",
        "{'descr': '|u1', 'fortran_order': 0, 'shape': (1, 2, 3)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1 2 3)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 2, 3)} x",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (-1, 2, 3)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999, 2, 3)}",
        "{'descr': '|u1', 'fortran_order': False, 'shape': (1, 1, 1, 2, 3)}", "{'other': '|u1'}",
        "{'descr': '|u1"}) {
    EXPECT_THAT(wrong(dictionary), HasSubstr("header is not understood")) << dictionary;
  }
  Bytes newer = npy(npy_dictionary("|u1", "(1, 2, 3)"), Bytes(6));
  newer[6] = 4;
  EXPECT_THAT(read_npy_images(newer), StartsWith("byte 6: version 4.0"));
}

TEST(Readers, NameTheLabelThatIsNoClass) {
  Bytes content(3 * 8);
  content[8] = 44;
  content[9] = 1;
  const Bytes wide = npy(npy_dictionary("<i8", "(3,)"), content);
  EXPECT_THAT(read_npy_labels(wide), HasSubstr("byte 136: label 300 of image 1"));
  for (std::size_t i = 16; i < 24; ++i) content[i] = 0xff;
  content[9] = 0;
  EXPECT_THAT(read_npy_labels(npy(npy_dictionary("<i8", "(3,)"), content)), HasSubstr("label -1 of image 2"));

  Bytes file = cifar(2, 1);
  file[kCifarRecord] = 10;
  EXPECT_THAT(read_cifar(file), StartsWith("byte 3073: label 10 of image 1"));

  const Dataset data = random_dataset(7, 3, {1, 2, 2}, 10);
  Bytes pack = packed(data);
  const PackLayout layout = pack_layout(data.shape, 7, 3);
  pack[layout.test_labels + 2] = 10;
  seal(pack);
  EXPECT_THAT(read_pack(pack),
              StartsWith("byte " + std::to_string(layout.test_labels + 2) + ": label 10 of image 2"));
}

TEST(Readers, FindEveryFlippedBitOfAPackedFile) {
  const Bytes whole = packed(random_dataset(7, 3, {3, 5, 4}, 10));
  ASSERT_EQ(read_pack(whole), "");
  std::mt19937 random(5);
  for (int round = 0; round < 4000; ++round) {
    Bytes file = whole;
    const std::size_t at = random() % file.size();
    file[at] ^= static_cast<std::uint8_t>(1u << random() % 8);
    ASSERT_THAT(read_pack(file), HasSubstr("byte ")) << at;
  }
}

TEST(Pack, LiesAsItsHeaderFileSays) {
  const Dataset data = random_dataset(7, 3, {3, 5, 4}, 10);
  const Bytes file = packed(data);
  EXPECT_EQ(std::string(file.begin(), file.begin() + 8), "TRNPACK\n");
  EXPECT_EQ(Bytes(file.begin() + 8, file.begin() + 48),
            (Bytes{1, 0, 0, 0, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 10, 0, 0, 0,
                   0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0,  0, 0, 0}));
  EXPECT_EQ(file.size(), 3 * kPackPage + 7 + 3 + 8);
  auto again = parse_pack(file);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->train.images.data(), file.data() + kPackPage);
  EXPECT_EQ(again->test.images.data(), file.data() + 2 * kPackPage);
  EXPECT_EQ(again->train.labels.data(), file.data() + 3 * kPackPage);
  EXPECT_EQ(again->mean, data.mean);
  EXPECT_EQ(again->deviation, data.deviation);
}

Part part_of(const Bytes& images, const Bytes& labels, ImageShape shape = {1, 1, 2}) {
  return {.shape = shape, .images = images, .labels = labels, .labels_file = "labels", .first_label = 8};
}

TEST(Assemble, CountsClassesByTheLargestTrainingLabel) {
  const Bytes images(6), labels{0, 4, 1}, zeros(3), beyond{0, 1, 5};
  EXPECT_EQ(assemble("x", part_of(images, labels), part_of(images, zeros), 0, nullptr)->classes, 5);
  EXPECT_EQ(assemble("x", part_of(images, zeros), part_of(images, zeros), 0, nullptr)->classes, 2);
  EXPECT_EQ(assemble("x", part_of(images, labels), part_of(images, zeros), 10, nullptr)->classes, 10);
  auto wrong = assemble("x", part_of(images, labels), part_of(images, beyond), 0, nullptr);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().text, "'labels': byte 10: label 5 of image 2 is not one of the 5 classes");
  EXPECT_EQ(wrong.error().code, Errc::usage);
}

TEST(Assemble, RefusesPartsThatDoNotFit) {
  const Bytes images(6), labels(3), few(2);
  auto wrong = assemble("x", part_of(images, few), part_of(images, labels), 0, nullptr);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().text, "'labels': 2 labels for 3 images");
  wrong = assemble("x", part_of(images, labels), part_of(images, labels, {1, 2, 1}), 0, nullptr);
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().text, "'x': training images are 1x1x2, test images 1x2x1");
}

TEST(Assemble, FindsMeanAndDeviationOfEachChannel) {
  // Channel 0 is 0 or 255, channel 1 always 51, channel 2 as doubles have it.
  Bytes images;
  std::mt19937 random(6);
  double sum = 0, squares = 0;
  constexpr std::size_t kPixels = 5 * 7, kCount = 20;
  for (std::size_t image = 0; image < kCount; ++image) {
    for (std::size_t i = 0; i < kPixels; ++i) images.push_back(i % 2 == image % 2 ? 0 : 255);
    images.insert(images.end(), kPixels, 51);
    for (std::size_t i = 0; i < kPixels; ++i) {
      images.push_back(static_cast<std::uint8_t>(random()));
      sum += images.back() / 255.0;
      squares += images.back() / 255.0 * images.back() / 255.0;
    }
  }
  const Bytes labels(kCount);
  const Part part = part_of(images, labels, {3, 5, 7});
  auto data = assemble("x", part, part, 0, nullptr);
  ASSERT_TRUE(data);
  EXPECT_FLOAT_EQ(data->mean[0], 0.5f);
  EXPECT_FLOAT_EQ(data->deviation[0], 0.5f);
  EXPECT_FLOAT_EQ(data->mean[1], 0.2f);
  EXPECT_EQ(data->deviation[1], 1.0f);  // nothing to divide by
  const double mean = sum / (kCount * kPixels);
  EXPECT_NEAR(data->mean[2], mean, 1e-6);
  EXPECT_NEAR(data->deviation[2], std::sqrt(squares / (kCount * kPixels) - mean * mean), 1e-6);
}

}  // namespace
}  // namespace trainer
