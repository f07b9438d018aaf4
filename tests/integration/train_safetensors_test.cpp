#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "ends.hpp"
#include "trainer/checkpoint/safetensors.hpp"
#include "trainer/file/new_file.hpp"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

class Safetensors : public testing::Test {
 protected:
  static TensorFile small() {
    return {{{"fc1.weight", {2, 3}, {1, -2, 3.5f, 0, 1e-40f, std::numeric_limits<float>::infinity()}},
             {"fc1.bias", {2}, {7, std::bit_cast<float>(0x7fc01234u)}},
             {"scalar", {}, {5}},
             {"none", {4, 0}, {}}},
            {{"step", "12"}, {"note", "a \"b\" \n"}}};
  }
  std::string bytes() {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A new file each time: to truncate one and fill it again is flushed to the disk by some file systems.
  void put(const std::string& bytes) {
    fs::remove(path_);
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  static std::string with_length(const std::string& header, const std::string& data = "") {
    std::string bytes(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) bytes[i] = char(header.size() >> (8 * i));
    return bytes + header + data;
  }
  std::string fault() {
    auto file = read_tensors(path_);
    return file ? "no fault" : file.error().text;
  }
  std::vector<std::string> names() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }
  static void expect_equal(const TensorFile& one, const TensorFile& other) {
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (const auto& tensor : one.tensors) {
      const auto* found = other.find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->shape, tensor.shape);
      // As bytes: what is no number must come back too.
      auto there = std::as_bytes(std::span(found->values)),
           expected = std::as_bytes(std::span(tensor.values));
      EXPECT_TRUE(std::equal(there.begin(), there.end(), expected.begin(), expected.end())) << tensor.name;
    }
  }

  dlaunch::TemporaryFolder temporary_;
  const std::string folder_ = temporary_.path;
  const std::string path_ = folder_ + "/a.safetensors";
};

TEST_F(Safetensors, EveryBitComesBack) {
  ASSERT_TRUE(write_tensors(path_, small()));
  auto file = read_tensors(path_);
  ASSERT_TRUE(file) << file.error().text;
  expect_equal(small(), *file);
  EXPECT_EQ(file->metadata.at("step"), "12");
  EXPECT_EQ(file->metadata.at("note"), "a \"b\" \n");
  EXPECT_EQ(file->metadata.at("xxh64").size(), 16u);
  EXPECT_EQ(file->find("fc2.weight"), nullptr);
}

TEST_F(Safetensors, AFileOfOthersIsReadWithoutChecksum) {
  put(with_length(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
                  std::string("\0\0\x80\x3f", 4)));
  auto file = read_tensors(path_);
  ASSERT_TRUE(file) << file.error().text;
  EXPECT_THAT(file->tensors.at(0).values, ElementsAre(1.0f));
}

TEST_F(Safetensors, NothingElseStaysInTheFolderAndTheOldFileIsReplaced) {
  put("old");
  ASSERT_TRUE(write_tensors(path_, small()));
  EXPECT_THAT(names(), ElementsAre("a.safetensors"));
  EXPECT_TRUE(read_tensors(path_));
}

TEST_F(Safetensors, OthersMayReadWhatTheUmaskAllows) {
  auto before = ::umask(022);
  ASSERT_TRUE(write_tensors(path_, small()));
  ::umask(before);
  EXPECT_EQ(fs::status(path_).permissions(), fs::perms(0644));
}

TEST_F(Safetensors, WhatIsLessThanWholeNeverAppearsAndLeavesNothing) {
  std::string whole = "the old one";
  put(whole);
  {
    auto file = NewFile::create(path_);
    ASSERT_TRUE(file);
    ASSERT_TRUE(file->write(std::as_bytes(std::span(whole))));
    EXPECT_EQ(names().size(), 2u);
    EXPECT_EQ(bytes(), "the old one");
  }
  EXPECT_THAT(names(), ElementsAre("a.safetensors"));
}

TEST_F(Safetensors, AFullDiskLeavesTheOldFileAndNothingBeside) {
  put("the old one");
  auto write_with_little_room = [&] {
    ::signal(SIGXFSZ, SIG_IGN);
    rlimit room{64, 64};
    ::setrlimit(RLIMIT_FSIZE, &room);
    auto written = write_tensors(path_, small());
    ::_exit(!written && written.error().text.find("write " + path_ + ": File too large") != std::string::npos
                ? 0
                : 1);
  };
  EXPECT_EXIT(write_with_little_room(), testing::ExitedWithCode(0), "");
  EXPECT_THAT(names(), ElementsAre("a.safetensors"));
  EXPECT_EQ(bytes(), "the old one");
}

TEST_F(Safetensors, WhatCannotBeWrittenIsNamed) {
  auto written = write_tensors(folder_ + "/no/file", small());
  ASSERT_FALSE(written);
  EXPECT_THAT(written.error().text, AllOf(StartsWith(folder_ + "/no/file: open"), HasSubstr("No such file")));
  EXPECT_FALSE(write_tensors(folder_, small()));  // a folder
  EXPECT_THAT(names(), IsEmpty());
  EXPECT_FALSE(write_tensors(path_, {{{"a", {3}, {1, 2}}}, {}}));
  EXPECT_FALSE(write_tensors(path_, {{{"a", {1}, {1}}, {"a", {1}, {1}}}, {}}));
  EXPECT_FALSE(write_tensors(path_, {{{"__metadata__", {1}, {1}}}, {}}));
  EXPECT_THAT(names(), IsEmpty());
}

TEST_F(Safetensors, WhatIsNoFileIsRefusedAtOnce) {
  EXPECT_THAT(fault(), HasSubstr("No such file"));
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(fault(), HasSubstr("is no regular file"));
  EXPECT_FALSE(read_tensors(folder_));
}

TEST_F(Safetensors, ALengthIsComparedBeforeItIsBelieved) {
  put(std::string(8, '\xff') + "{}");
  EXPECT_THAT(fault(), HasSubstr("byte 0: no safetensors file: a header of 18446744073709551615 bytes"));
  put(std::string("\0\0\0\5\0\0\0\0", 8) + "{}");  // 83 886 080
  EXPECT_THAT(fault(), HasSubstr("byte 10: the file ends within its header"));
  // A tensor of 4 TB in a file of few bytes: it must be refused, not allocated.
  put(with_length(R"({"x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4000000000000]}})"));
  EXPECT_THAT(fault(), HasSubstr(": the file ends, its tensors at byte 4000000000086"));
}

TEST_F(Safetensors, BytesAfterTheLastTensorAreAnError) {
  ASSERT_TRUE(write_tensors(path_, small()));
  put(bytes() + "x");
  EXPECT_THAT(fault(), HasSubstr("the file ends, its tensors at byte"));
}

TEST_F(Safetensors, CutAtEveryByteItIsRefused) {
  ASSERT_TRUE(write_tensors(path_, small()));
  auto whole = bytes();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    put(whole.substr(0, size));
    EXPECT_THAT(fault(), StartsWith(path_ + ": byte ")) << size;
  }
}

// What a flip may do: be noticed, or take the checksum's own name away and change nothing else.
TEST_F(Safetensors, AFlippedBitIsNoticedOrHarmless) {
  ASSERT_TRUE(write_tensors(path_, small()));
  auto whole = bytes();
  auto data = whole.size() - 9 * sizeof(float);
  std::mt19937 random(5);
  int harmless = 0;
  for (int i = 0; i < 2000; ++i) {
    auto at = i < 1000 ? random() % whole.size() : data + random() % (whole.size() - data);
    auto bit = random() % 8;
    auto flipped = whole;
    flipped[at] = char(flipped[at] ^ (1 << bit));
    put(flipped);
    auto file = read_tensors(path_);
    if (!file) continue;
    ++harmless;
    EXPECT_LT(at, data) << "bit " << bit;
    EXPECT_EQ(file->metadata.count("xxh64"), 0u) << "byte " << at << " bit " << bit;
    expect_equal(small(), *file);
  }
  EXPECT_LT(harmless, 100);
}

TEST_F(Safetensors, WithoutTheChecksumAFlipInTheDataWouldPass) {
  ASSERT_TRUE(write_tensors(path_, small()));
  auto flipped = bytes();
  flipped.back() = char(flipped.back() ^ 1);
  put(flipped);
  EXPECT_THAT(fault(), HasSubstr("the checksum is"));
  auto name = flipped.find("xxh64");
  flipped.replace(name, 5, "other");
  put(flipped);
  EXPECT_EQ(fault(), "no fault");
}

TEST_F(Safetensors, ManyFlipsAtOnceAreNoCrash) {
  ASSERT_TRUE(write_tensors(path_, small()));
  auto whole = bytes();
  std::mt19937 random(6);
  for (int i = 0; i < 500; ++i) {
    auto broken = whole;
    for (int k = 0; k < 8; ++k) broken[8 + random() % (whole.size() - 8)] = char(random());
    put(broken);
    EXPECT_FALSE(read_tensors(path_));
  }
}

TEST(IsUnfinished, KnowsOnlyItsOwnNames) {
  EXPECT_TRUE(is_unfinished("a.x.0123456789abcdef.tmp", "a.x"));
  EXPECT_FALSE(is_unfinished("a.x.0123456789abcdef.tmp", "b.x"));
  EXPECT_FALSE(is_unfinished("a.x.0123456789abcdeg.tmp", "a.x"));
  EXPECT_FALSE(is_unfinished("a.x.0123.tmp", "a.x"));
  EXPECT_FALSE(is_unfinished("a.x.tmp", "a.x"));
  EXPECT_FALSE(is_unfinished("a.x", "a.x"));
}

}  // namespace
}  // namespace trainer
