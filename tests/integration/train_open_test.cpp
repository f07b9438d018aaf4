#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "../image_bytes.hpp"
#include "ends.hpp"
#include "trainer/data/open.hpp"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::StartsWith;

class OpenTest : public testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder + "/" + name; }
  void write(const std::string& name, const Bytes& bytes) const {
    fs::create_directories(fs::path(path(name)).parent_path());
    std::ofstream file(path(name), std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  }
  void write_idx(const std::string& below, const Dataset& data, bool gz) const {
    const auto one = [&](const std::string& name, const Bytes& bytes) {
      write(below + "/" + name + (gz ? ".gz" : ""), gz ? gzipped(bytes) : bytes);
    };
    for (const auto& [split, name] : {std::pair{&data.train, std::string("train")}, {&data.test, "t10k"}}) {
      one(name + "-images-idx3-ubyte",
          idx_images(static_cast<std::uint32_t>(split->size()), static_cast<std::uint32_t>(data.shape.height),
                     static_cast<std::uint32_t>(data.shape.width),
                     {split->images.begin(), split->images.end()}));
      one(name + "-labels-idx1-ubyte", idx_labels({split->labels.begin(), split->labels.end()}));
    }
  }
  static Error error_of(const std::string& data) {
    auto opened = open_dataset(data, 0);
    EXPECT_FALSE(opened) << data;
    return opened ? Error{} : opened.error();
  }

  dlaunch::TemporaryFolder temporary;
  const std::string folder = temporary.path;
};

bool same(std::span<const std::uint8_t> a, std::span<const std::uint8_t> b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end());
}

void expect_same(const Dataset& a, const Dataset& b) {
  EXPECT_EQ(a.shape, b.shape);
  EXPECT_EQ(a.classes, b.classes);
  EXPECT_TRUE(same(a.train.images, b.train.images));
  EXPECT_TRUE(same(a.train.labels, b.train.labels));
  EXPECT_TRUE(same(a.test.images, b.test.images));
  EXPECT_TRUE(same(a.test.labels, b.test.labels));
  EXPECT_EQ(a.mean, b.mean);
  EXPECT_EQ(a.deviation, b.deviation);
}

TEST_F(OpenTest, FashionMnistIsWhatItIsKnownToBe) {
  if (!fs::exists(kDefaultData)) GTEST_SKIP() << "no " << kDefaultData << " (dataset-fashion-mnist)";
  auto data = open_dataset(kDefaultData, 0);
  ASSERT_TRUE(data) << data.error().text;
  EXPECT_EQ(data->train.size(), 60000u);
  EXPECT_EQ(data->test.size(), 10000u);
  EXPECT_EQ(data->shape, (ImageShape{1, 28, 28}));
  EXPECT_EQ(data->classes, 10);
  EXPECT_NEAR(data->mean[0], 0.2860, 5e-5);
  EXPECT_NEAR(data->deviation[0], 0.3530, 5e-5);

  ASSERT_TRUE(pack_dataset({kDefaultData}, path("packed")));
  auto again = open_dataset(path("packed"), 0);
  ASSERT_TRUE(again) << again.error().text;
  expect_same(*again, *data);
}

TEST_F(OpenTest, IdxFilesAreReadPlainAndCompressed) {
  const Dataset data = random_dataset(50, 20, {1, 6, 5}, 10);
  for (const bool gz : {false, true}) {
    write_idx(gz ? "gz" : "plain", data, gz);
    auto opened = open_dataset(path(gz ? "gz" : "plain"), 0);
    ASSERT_TRUE(opened) << opened.error().text;
    expect_same(*opened, data);
    EXPECT_EQ(opened->origin, path(gz ? "gz" : "plain"));
  }
}

TEST_F(OpenTest, Cifar10IsAllOfItsSixFiles) {
  // Holes but for one record of each file: 30 MB that take no room.
  std::vector<std::string> names{"test_batch.bin"};
  for (int i = 1; i <= 5; ++i) names.push_back("data_batch_" + std::to_string(i) + ".bin");
  for (std::size_t i = 0; i < names.size(); ++i) {
    Bytes record(kCifarRecord, static_cast<std::uint8_t>(10 * i));
    record[0] = static_cast<std::uint8_t>(i);
    write("cifar/" + names[i], record);
    fs::resize_file(path("cifar/" + names[i]), kCifarRecords * kCifarRecord);
  }
  auto data = open_dataset(path("cifar"), 0);
  ASSERT_TRUE(data) << data.error().text;
  EXPECT_EQ(data->shape, kCifarShape);
  EXPECT_EQ(data->classes, 10);
  EXPECT_EQ(data->train.size(), 50000u);
  EXPECT_EQ(data->test.size(), 10000u);
  EXPECT_EQ(data->train.labels[30000], 4);
  EXPECT_EQ(data->train.images[30000 * 3072 + 3071], 40);
  EXPECT_EQ(data->test.images[1], 0);

  fs::resize_file(path("cifar/data_batch_3.bin"), kCifarRecords * kCifarRecord - kCifarRecord);
  EXPECT_EQ(error_of(path("cifar")).text,
            "'" + path("cifar/data_batch_3.bin") +
                "': byte 30726927: the file has 30726927 bytes instead of 10000 records of 3073");
  fs::remove(path("cifar/data_batch_3.bin"));
  EXPECT_THAT(error_of(path("cifar")).text,
              StartsWith("'" + path("cifar/data_batch_3.bin") + "': open: No such file"));
}

TEST_F(OpenTest, AnErrorNamesTheFileAndTheByte) {
  const Dataset data = random_dataset(50, 20, {1, 6, 5}, 10);
  write_idx("x", data, false);
  const auto name = path("x/t10k-labels-idx1-ubyte");
  fs::resize_file(name, 27);
  EXPECT_EQ(error_of(path("x")).text,
            "'" + name + "': byte 27: the file has 27 bytes, its header promises 28");
  EXPECT_EQ(error_of(path("x")).code, Errc::usage);
  Bytes labels(20);
  labels[7] = 10;
  write("x/t10k-labels-idx1-ubyte", idx_labels(labels));
  EXPECT_EQ(error_of(path("x")).text,
            "'" + name + "': byte 15: label 10 of image 7 is not one of the 10 classes");
  write("x/t10k-labels-idx1-ubyte", idx_labels(Bytes(19)));
  EXPECT_EQ(error_of(path("x")).text, "'" + name + "': 19 labels for 20 images");
  fs::remove(name);
  EXPECT_EQ(error_of(path("x")).text, "'" + name + "': open: No such file or directory");
  write("x/t10k-labels-idx1-ubyte", {});
  EXPECT_EQ(error_of(path("x")).text,
            "'" + name + "': byte 0: the file ends within the 8 bytes of its header");

  write_idx("z", data, true);
  fs::resize_file(path("z/train-images-idx3-ubyte.gz"), 300);
  EXPECT_EQ(error_of(path("z")).text,
            "'" + path("z/train-images-idx3-ubyte.gz") + "': byte 300: the compressed data end too early");
}

TEST_F(OpenTest, MissingDataNamesWhatToDo) {
  EXPECT_EQ(error_of(path("none")).text, "no data at '" + path("none") + "'");
  EXPECT_THAT(error_of(path("none")).hint, HasSubstr("'train pack'"));
  EXPECT_EQ(error_of(folder).text, "no data in '" + folder + "'");
  EXPECT_THAT(error_of(folder).hint, HasSubstr("train-images-idx3-ubyte.gz"));
  write("text", {'h', 'e', 'l', 'l', 'o'});
  EXPECT_EQ(error_of(path("text")).text, "'" + path("text") + "': byte 0: not a packed file");
}

TEST_F(OpenTest, APipeIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("train-images-idx3-ubyte").c_str(), 0600), 0);
  EXPECT_EQ(error_of(folder).text, "'" + path("train-images-idx3-ubyte") + "' is not a regular file");
  EXPECT_EQ(error_of(path("train-images-idx3-ubyte")).text,
            "'" + path("train-images-idx3-ubyte") + "' is not a regular file");
}

TEST_F(OpenTest, TheWordSyntheticNeedsNoFile) {
  auto data = open_dataset("synthetic:60x1x8x8:3", 1);
  ASSERT_TRUE(data);
  EXPECT_EQ(data->train.size(), 60u);
  EXPECT_EQ(data->origin, "synthetic:60x1x8x8:3");
  EXPECT_FALSE(same(data->train.images, open_dataset("synthetic:60x1x8x8:3", 2)->train.images));
  EXPECT_THAT(error_of("synthetic:x").text, HasSubstr("not understood"));
  EXPECT_EQ(error_of("synthetics").text, "no data at 'synthetics'");
}

using PackTest = OpenTest;

TEST_F(PackTest, SeveralInputsBecomeOneAfterTheOther) {
  const Dataset first = random_dataset(50, 20, {1, 6, 5}, 10);
  write_idx("a", first, true);
  write("b", packed(random_dataset(30, 10, {1, 6, 5}, 10)));
  ASSERT_TRUE(pack_dataset({path("a"), path("b"), path("a")}, path("all")));
  auto all = open_dataset(path("all"), 0);
  ASSERT_TRUE(all) << all.error().text;
  EXPECT_EQ(all->train.size(), 130u);
  EXPECT_EQ(all->test.size(), 50u);
  auto second = open_dataset(path("b"), 0);
  ASSERT_TRUE(second);
  Bytes images(first.train.images.begin(), first.train.images.end());
  images.insert(images.end(), second->train.images.begin(), second->train.images.end());
  images.insert(images.end(), first.train.images.begin(), first.train.images.end());
  EXPECT_TRUE(same(all->train.images, images));
  EXPECT_TRUE(same(all->test.labels.subspan(20, 10), second->test.labels));
  // Mean and deviation are those of all of it.
  Part part{
      .shape = all->shape, .images = all->train.images, .labels = all->train.labels, .labels_file = "all"};
  EXPECT_EQ(all->mean, assemble("all", part, part, 10, nullptr)->mean);
  EXPECT_EQ(all->deviation, assemble("all", part, part, 10, nullptr)->deviation);
}

TEST_F(PackTest, RefusesInputsThatDoNotAgree) {
  for (const char* other : {"synthetic:60x1x8x9:3", "synthetic:60x1x8x8:4"}) {
    auto packed = pack_dataset({"synthetic:60x1x8x8:3", other}, path("all"));
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code, Errc::usage);
    EXPECT_THAT(packed.error().text, HasSubstr(other));
  }
  EXPECT_FALSE(pack_dataset({}, path("all")));
  EXPECT_FALSE(pack_dataset({"synthetic:60", path("none")}, path("all")));
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(PackTest, AFailureLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(pack_dataset({"synthetic:10x1x4x4:2"}, path("all")));
  const auto size = fs::file_size(path("all"));
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{20000, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  auto packed = pack_dataset({"synthetic:600"}, path("all"));
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  ASSERT_FALSE(packed);
  EXPECT_THAT(packed.error().text, testing::AllOf(HasSubstr("write "), HasSubstr("File too large")));
  EXPECT_EQ(fs::file_size(path("all")), size);
  EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1);
}

TEST_F(PackTest, AnInputCanBeItsOwnOutput) {
  ASSERT_TRUE(pack_dataset({"synthetic:60x1x8x8:3"}, path("all")));
  ASSERT_TRUE(pack_dataset({path("all"), path("all")}, path("all")));
  auto all = open_dataset(path("all"), 0);
  ASSERT_TRUE(all);
  EXPECT_EQ(all->train.size(), 120u);
  EXPECT_FALSE(pack_dataset({path("all")}, path("no/such/folder")));
  write("mine", {1, 2, 3});
  EXPECT_FALSE(pack_dataset({path("all")}, path("mine")));  // no packed file
  EXPECT_EQ(fs::file_size(path("mine")), 3u);
  EXPECT_FALSE(pack_dataset({path("all")}, folder));
}

}  // namespace
}  // namespace trainer
