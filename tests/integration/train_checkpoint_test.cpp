#include <fcntl.h>
#include <gmock/gmock.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

#include "../small_model.hpp"
#include "ends.hpp"
#include "trainer/checkpoint/checkpoint.hpp"

namespace trainer {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

class CheckpointTest : public testing::Test {
 protected:
  // Every number of it tells the step.
  Checkpoint at(std::int64_t step) const {
    Checkpoint checkpoint;
    checkpoint.progress = {step, 2, step * 64, 18446744073709551615u, step + 1, "adamw", 4, "tree"};
    checkpoint.parameters.assign(spec_.parameter_count, float(step));
    checkpoint.slots = {{"exp_avg", std::vector<float>(spec_.parameter_count, float(step) + 0.25f)},
                        {"exp_avg_sq", std::vector<float>(spec_.parameter_count, float(step) + 0.5f)}};
    return checkpoint;
  }
  void save(std::int64_t step, int keep = 3) {
    auto saved = CheckpointFolder(folder_, keep).save(spec_, at(step));
    ASSERT_TRUE(saved) << saved.error().text;
  }
  std::string path(std::int64_t step) const {
    return folder_ + "/checkpoint-" + std::to_string(step) + ".safetensors";
  }
  std::int64_t newest_step() {
    passed_over_.clear();
    auto newest = CheckpointFolder(folder_, 3).newest(spec_, passed_over_);
    EXPECT_TRUE(newest) << newest.error().text;
    return newest && *newest ? (*newest)->progress.step : -1;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename());
    return names;
  }
  static std::string bytes(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // A new file each time: to truncate one and fill it again is flushed to the disk by some file systems.
  static void put(const std::string& path, const std::string& bytes) {
    fs::remove(path);
    std::ofstream(path, std::ios::binary) << bytes;
  }
  std::string fault(const std::string& path) const {
    auto checkpoint = read_checkpoint(path, spec_);
    return checkpoint ? "no fault" : checkpoint.error().text;
  }

  ModelSpec spec_ = small_model();
  dlaunch::TemporaryFolder temporary_;
  const std::string top_ = temporary_.path;
  const std::string folder_ = top_ + "/new/folder";
  std::vector<std::string> passed_over_;
};

TEST_F(CheckpointTest, EverythingComesBack) {
  save(40);
  auto back = read_checkpoint(path(40), spec_);
  ASSERT_TRUE(back) << back.error().text;
  auto expected = at(40);
  EXPECT_EQ(back->progress.step, 40);
  EXPECT_EQ(back->progress.epoch, 2);
  EXPECT_EQ(back->progress.epoch_samples, 2560);
  EXPECT_EQ(back->progress.seed, 18446744073709551615u);
  EXPECT_EQ(back->progress.optimizer_steps, 41);
  EXPECT_EQ(back->progress.optimizer, "adamw");
  EXPECT_EQ(back->progress.world_size, 4);
  EXPECT_EQ(back->progress.reduce, "tree");
  EXPECT_EQ(back->parameters, expected.parameters);
  ASSERT_EQ(back->slots.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->slots[i].name, expected.slots[i].name);
    EXPECT_EQ(back->slots[i].values, expected.slots[i].values);
  }
}

TEST_F(CheckpointTest, TheWeightsLieBeside) {
  save(40);
  auto weights = read_weights(folder_ + "/model.safetensors", spec_);
  ASSERT_TRUE(weights) << weights.error().text;
  EXPECT_EQ(*weights, at(40).parameters);
}

TEST_F(CheckpointTest, WithoutAFolderOrInAnEmptyOneThereIsNone) {
  EXPECT_EQ(newest_step(), -1);
  fs::create_directories(folder_);
  EXPECT_EQ(newest_step(), -1);
  put(folder_ + "/checkpoint-x.safetensors", "");
  put(folder_ + "/checkpoint-007.safetensors", "");
  put(folder_ + "/checkpoint-.safetensors", "");
  put(folder_ + "/checkpoint-9.safetensors.0123456789abcdef.tmp", "");
  EXPECT_EQ(newest_step(), -1);
  EXPECT_THAT(passed_over_, IsEmpty());
}

TEST_F(CheckpointTest, AFolderThatIsNoneIsAnError) {
  put(top_ + "/file", "");
  EXPECT_FALSE(CheckpointFolder(top_ + "/file", 3).newest(spec_, passed_over_));
  auto saved = CheckpointFolder(top_ + "/file", 3).save(spec_, at(1));
  ASSERT_FALSE(saved);
  EXPECT_THAT(saved.error().text, HasSubstr(top_ + "/file"));
}

TEST_F(CheckpointTest, TheNewestByNumberStay) {
  for (auto step : {8, 9, 10, 100}) save(step);
  EXPECT_THAT(names(), UnorderedElementsAre("checkpoint-9.safetensors", "checkpoint-10.safetensors",
                                            "checkpoint-100.safetensors", "model.safetensors"));
  EXPECT_EQ(newest_step(), 100);
  save(101, 1);
  EXPECT_THAT(names(), UnorderedElementsAre("checkpoint-101.safetensors", "model.safetensors"));
}

TEST_F(CheckpointTest, TheOneJustSavedStaysWhateverLiesThere) {
  for (auto step : {100, 200, 300}) save(step);
  save(5, 2);
  EXPECT_THAT(names(), UnorderedElementsAre("checkpoint-5.safetensors", "checkpoint-300.safetensors",
                                            "model.safetensors"));
}

TEST_F(CheckpointTest, FilesOfOthersStay) {
  save(1);
  put(folder_ + "/notes.tmp", "mine");
  put(folder_ + "/checkpoint-best.safetensors", "mine");
  put(folder_ + "/other.safetensors.0123456789abcdef.tmp", "mine");
  save(2, 1);
  EXPECT_THAT(names(),
              UnorderedElementsAre("checkpoint-2.safetensors", "model.safetensors", "notes.tmp",
                                   "checkpoint-best.safetensors", "other.safetensors.0123456789abcdef.tmp"));
}

TEST_F(CheckpointTest, WhatAKilledRunLeftIsRemovedByTheNextSave) {
  fs::create_directories(folder_);
  put(folder_ + "/checkpoint-9.safetensors.0123456789abcdef.tmp", "torn");
  put(folder_ + "/model.safetensors.0123456789abcdef.tmp", "torn");
  save(10);
  EXPECT_THAT(names(), UnorderedElementsAre("checkpoint-10.safetensors", "model.safetensors"));
}

TEST_F(CheckpointTest, TornOnesArePassedOverAndTold) {
  for (auto step : {10, 20, 30}) save(step);
  auto whole = bytes(path(30));
  put(path(30), whole.substr(0, whole.size() - 5));
  put(path(20), "");
  EXPECT_EQ(newest_step(), 10);
  EXPECT_THAT(passed_over_, ElementsAre(AllOf(HasSubstr(path(30)), HasSubstr("the file ends")),
                                        AllOf(HasSubstr(path(20)), HasSubstr("the file ends"))));
}

TEST_F(CheckpointTest, CutAtEveryByteTheOneBeforeIsTaken) {
  for (auto step : {10, 20}) save(step);
  auto whole = bytes(path(20));
  for (std::size_t size = 0; size < whole.size(); size += size < whole.size() - 64 ? 7 : 1) {
    put(path(20), whole.substr(0, size));
    EXPECT_EQ(newest_step(), 10) << size;
    EXPECT_EQ(passed_over_.size(), 1u);
  }
}

// A flip in the text of the step would continue somewhere else; the checksum covers that too.
TEST_F(CheckpointTest, AnyFlippedBitIsNoticed) {
  save(10);
  save(20);
  auto whole = bytes(path(20));
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    auto flipped = whole;
    auto at = random() % whole.size();
    flipped[at] = char(flipped[at] ^ (1 << random() % 8));
    put(path(20), flipped);
    EXPECT_EQ(newest_step(), 10) << "byte " << at;
  }
}

TEST_F(CheckpointTest, OfAnotherModelItIsRefusedWithBothNames) {
  save(10);
  spec_ = model_with("other", {{.name = "fc1.weight", .shape = {2, 2}}});
  auto expected =
      AllOf(HasSubstr(path(10)), HasSubstr(small_model().fingerprint()), HasSubstr(spec_.fingerprint()));
  EXPECT_THAT(fault(path(10)), expected);
  // Not passed over: to begin anew would drop what is there.
  auto newest = CheckpointFolder(folder_, 3).newest(spec_, passed_over_);
  ASSERT_FALSE(newest);
  EXPECT_EQ(newest.error().code, Errc::usage);
  EXPECT_THAT(newest.error().text, expected);
}

TEST_F(CheckpointTest, AFileThatIsNoCheckpointIsRefused) {
  save(10);
  EXPECT_THAT(fault(folder_ + "/model.safetensors"), HasSubstr("no checkpoint: its metadata have no"));
  EXPECT_THAT(fault(folder_ + "/none"), HasSubstr("No such file"));
  auto renamed = bytes(path(10));  // valid, but without a checksum nobody knows that it is whole
  renamed.replace(renamed.find("xxh64"), 5, "other");
  put(path(10), renamed);
  EXPECT_THAT(fault(path(10)), HasSubstr("no checksum"));
}

TEST_F(CheckpointTest, APieceOfMetadataThatIsNoNumberIsNamed) {
  save(10);
  auto file = *read_tensors(path(10));
  for (auto [key, value] :
       {std::pair{"step", "-1"}, {"step", "ten"}, {"world_size", "99999999999"}, {"seed", ""}}) {
    auto wrong = file;
    wrong.metadata[key] = value;
    ASSERT_TRUE(write_tensors(path(10), wrong));
    EXPECT_THAT(fault(path(10)), HasSubstr(std::string(key) + " is '" + value + "'"));
  }
  auto wrong = file;
  wrong.metadata.erase("optimizer");
  ASSERT_TRUE(write_tensors(path(10), wrong));
  EXPECT_THAT(fault(path(10)), HasSubstr("have no 'optimizer'"));
}

TEST_F(CheckpointTest, ABufferOfAnotherSizeIsRefused) {
  auto checkpoint = at(1);
  checkpoint.slots[1].values.pop_back();
  EXPECT_FALSE(CheckpointFolder(folder_, 1).save(spec_, checkpoint));
  checkpoint = at(1);
  checkpoint.parameters.pop_back();
  EXPECT_FALSE(CheckpointFolder(folder_, 1).save(spec_, checkpoint));
  EXPECT_THAT(names(), IsEmpty());

  save(2);
  auto file = *read_tensors(path(2));
  auto& slot = file.tensors.back();
  slot.values.pop_back();
  --slot.shape[0];
  ASSERT_TRUE(write_tensors(path(2), file));
  EXPECT_THAT(fault(path(2)), HasSubstr("tensor 'optimizer/exp_avg_sq' has"));
}

class WeightsTest : public CheckpointTest {
 protected:
  WeightsTest() : weights_(spec_.parameter_count), file_(top_ + "/w.safetensors") {
    std::iota(weights_.begin(), weights_.end(), 0.5f);
  }
  std::string weights_fault(TensorFile file) {
    EXPECT_TRUE(write_tensors(file_, file));
    auto weights = read_weights(file_, spec_);
    return weights ? "no fault" : weights.error().text;
  }

  std::vector<float> weights_;
  std::string file_;
};

TEST_F(WeightsTest, HaveTheNamesAndShapesOfTheModel) {
  ASSERT_TRUE(write_weights(file_, spec_, weights_));
  auto file = *read_tensors(file_);
  ASSERT_EQ(file.tensors.size(), 4u);
  EXPECT_THAT(file.find("conv1.weight")->shape, ElementsAre(2, 1, 3, 3));
  EXPECT_THAT(file.find("fc1.bias")->values, ElementsAre(44.5f, 45.5f, 46.5f));
  EXPECT_EQ(*read_weights(file_, spec_), weights_);
}

TEST_F(WeightsTest, AreFoundByNameInAnyOrder) {
  ASSERT_TRUE(write_weights(file_, spec_, weights_));
  auto file = *read_tensors(file_);
  std::reverse(file.tensors.begin(), file.tensors.end());
  ASSERT_TRUE(write_tensors(file_, file));
  EXPECT_EQ(*read_weights(file_, spec_), weights_);
}

TEST_F(WeightsTest, AMissingAdditionalOrMisshapenTensorIsNamed) {
  ASSERT_TRUE(write_weights(file_, spec_, weights_));
  auto file = *read_tensors(file_);
  auto missing = file;
  missing.tensors.erase(missing.tensors.begin() + 1);
  EXPECT_EQ(weights_fault(missing), file_ + ": has no tensor 'conv1.bias'");
  auto more = file;
  more.tensors.push_back({"fc9.bias", {1}, {1}});
  EXPECT_EQ(weights_fault(more), file_ + ": tensor 'fc9.bias' is none of the model's");
  auto turned = file;
  turned.tensors[2].shape = {8, 3};
  EXPECT_EQ(weights_fault(turned), file_ + ": tensor 'fc1.weight' is 8x3, the model needs 3x8");
}

TEST_F(WeightsTest, ACheckpointInTheirPlaceIsToldApart) {
  save(10);
  auto weights = read_weights(path(10), spec_);
  ASSERT_FALSE(weights);
  EXPECT_THAT(weights.error().hint, HasSubstr("--resume " + path(10)));
}

TEST(DigestOf, IsXxh64OfTheBytes) {
  EXPECT_EQ(digest_of({}), "ef46db3751d8e999");  // the published value for no bytes
  EXPECT_NE(digest_of({0.0f}), digest_of({-0.0f}));
  EXPECT_EQ(digest_of({1, 2, 3}), digest_of({1, 2, 3}));
}

// A process that saves in a loop and is killed: it tells each step through a pipe once save() has returned.
class Saver {
 public:
  Saver(const std::string& folder, const ModelSpec& spec, std::int64_t first, const auto& checkpoint_at) {
    int ends[2];
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      CheckpointFolder checkpoints(folder, 2);
      for (auto step = first;; ++step) {
        if (!checkpoints.save(spec, checkpoint_at(step))) ::_exit(1);
        if (::write(ends[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(ends[1]);
    steps_ = ends[0];
  }
  ~Saver() { ::close(steps_); }

  // Lets it save for that long, kills it, and gives the last step it told, or 0.
  std::int64_t kill_after(std::chrono::microseconds time) {
    auto end = std::chrono::steady_clock::now() + time;
    std::int64_t last = 0, step = 0;
    auto read_one = [&] {
      bool got = ::read(steps_, &step, sizeof step) == ssize_t(sizeof step);
      if (got) last = step;
      return got;
    };
    for (auto left = time; left.count() > 0; left = std::chrono::duration_cast<std::chrono::microseconds>(
                                                 end - std::chrono::steady_clock::now())) {
      pollfd told{steps_, POLLIN, 0};
      timespec limit{0, left.count() * 1000};
      if (::ppoll(&told, 1, &limit, nullptr) == 1 && !read_one()) break;
    }
    ::kill(pid_, SIGKILL);
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    EXPECT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
    while (read_one()) {
    }
    return last;
  }

 private:
  pid_t pid_;
  int steps_;
};

TEST_F(CheckpointTest, KilledAtAnyMomentTheLastOneSavedIsThereAndWhole) {
  std::mt19937 random(11);
  std::int64_t last = 0;
  int torn = 0;
  for (int i = 0; i < 30; ++i) {
    Saver saver(folder_, spec_, last + 1, [&](std::int64_t step) { return at(step); });
    auto told = saver.kill_after(std::chrono::microseconds(500 + random() % 40'000));
    last = std::max(last, told);
    if (!fs::exists(folder_)) continue;  // it was killed before its first step
    auto all = names();
    torn +=
        int(std::count_if(all.begin(), all.end(), [](const auto& name) { return name.ends_with(".tmp"); }));
    auto newest = CheckpointFolder(folder_, 2).newest(spec_, passed_over_);
    ASSERT_TRUE(newest) << newest.error().text;
    EXPECT_THAT(passed_over_, IsEmpty());
    if (!*newest) {
      EXPECT_EQ(last, 0);
      continue;
    }
    auto step = (*newest)->progress.step;
    EXPECT_TRUE(step == last || step == last + 1) << step << " after " << last;
    EXPECT_EQ((*newest)->parameters, at(step).parameters);
    EXPECT_EQ((*newest)->slots[1].values, at(step).slots[1].values);
    last = step;
  }
  EXPECT_GT(last, 0);
  EXPECT_GT(torn, 0) << "no kill met a save under way: the test shows nothing";
  save(last + 1);
  EXPECT_THAT(names(), testing::Each(testing::EndsWith(".safetensors")));
}

}  // namespace
}  // namespace trainer
