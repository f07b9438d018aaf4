#include <gmock/gmock.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/cuda/world.hpp"

namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using trainer::Device;
using world::module;
using world::play;
using world::Role;

std::unique_ptr<Device> open(int ordinal = 0) {
  auto device = module().open_device(ordinal);
  EXPECT_TRUE(device) << device.error().text;
  return std::move(*device);
}

std::vector<float> contents(Device& device, const trainer::Memory& memory) {
  std::vector<float> host(memory.bytes() / sizeof(float));
  device.download(host.data(), memory.data(), memory.bytes());
  EXPECT_TRUE(device.synchronize());
  return host;
}

// Keeps the lane busy for a while, on the stand-in for some 30 ms.
void slow_work(Device& device, const trainer::Memory& square) {
  device.gemm(false, false, 200, 200, 200, 1, square.floats(), 200, square.floats(), 200, 0, square.floats(),
              200);
}
constexpr std::size_t kSquare = 200 * 200 * sizeof(float);

Role count("count", [] {
  auto count = module().device_count();
  return count
             ? "found " + std::to_string(*count)
             : (count.error().code == trainer::Errc::not_found ? "none: " : "failed: ") + count.error().text;
});

std::string counted(const world::Variables& variables) {
  return play({.role = "count", .everywhere = variables}).front();
}

TEST(CudaModule, IsOfThisBuildAndNamesItsLibraries) {
  EXPECT_STREQ(module().build, trainer::kModuleBuild);
  EXPECT_THAT(module().describe(), AllOf(HasSubstr("CUDA " CUDA_MAJOR "."), HasSubstr(", NCCL 2.")));
}

TEST(CudaModule, LoadsWithoutADriverAndSaysSo) {
  const auto said = counted({{"LD_LIBRARY_PATH", ""}});
  if (said.starts_with("found")) GTEST_SKIP() << "this machine has a GPU";
  EXPECT_THAT(said, HasSubstr("none: no NVIDIA driver (cudaGetDeviceCount: "));
  EXPECT_EQ(said.find('\n'), std::string::npos);
}

Role opening("opening", [] {
  const auto opened = trainer::cuda_module();
  return opened ? std::string("opened") : opened.error().text;
});

TEST(CudaModule, NamesTheLibraryThatItCannotBeOpenedFor) {
  const auto folder = world::temporary_folder();
  std::ofstream(folder + "/libcudart.so." CUDA_MAJOR) << "no library, though it has its name";
  EXPECT_THAT(play({.role = "opening"}), ElementsAre("opened"));
  EXPECT_THAT(
      play({.role = "opening", .everywhere = {{"LD_LIBRARY_PATH", folder}}}),
      Each(AllOf(HasSubstr("train_cuda.so' was not opened: "), HasSubstr("libcudart.so." CUDA_MAJOR))));
}

TEST(CudaModule, TakesEveryKindOfNoGpuForOne) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in fails on request";
  EXPECT_EQ(counted({}), "found 1");
  EXPECT_THAT(counted({{"FAKE_CUDA_FAIL", "count:35"}}), HasSubstr("none: no NVIDIA driver"));
  EXPECT_THAT(counted({{"FAKE_CUDA_FAIL", "count:34"}}), HasSubstr("none: no NVIDIA driver"));
  EXPECT_THAT(counted({{"FAKE_CUDA_FAIL", "count:100"}}), HasSubstr("none: no GPU"));
  EXPECT_THAT(counted({{"FAKE_CUDA_DEVICES", "0"}}), HasSubstr("none: no GPU"));
  EXPECT_THAT(counted({{"FAKE_CUDA_FAIL", "count:999"}}), HasSubstr("failed: cudaGetDeviceCount: "));
}

TEST(CudaDevice, IsKnownByTheIdOfItsGpu) {
  auto device = open();
  EXPECT_EQ(device->name(), "cuda:0");
  EXPECT_THAT(device->description(), HasSubstr(" GB"));
  EXPECT_EQ(device->unique_id(), open()->unique_id());
  EXPECT_EQ(device->unique_id().size(), std::strlen("GPU-00000000-0000-0000-0000-000000000000"));
  if (world::on_stand_ins()) {
    EXPECT_EQ(device->unique_id(), "GPU-da000000-0000-0000-0000-000000000000");
  }
}

TEST(CudaDevice, ThatDoesNotExistIsNamed) {
  const auto device = module().open_device(4711);
  ASSERT_FALSE(device);
  EXPECT_THAT(device.error().text, HasSubstr("cuda:4711: there is no such GPU: this process sees "));
}

TEST(CudaDevice, CountsItsMemoryAndZeroesIt) {
  auto device = open();
  const auto before = device->memory_use().now;
  {
    auto first = *device->allocate(4000);
    EXPECT_THAT(contents(*device, first), Each(0.0f));
    auto second = *device->allocate(6000);
    EXPECT_EQ(device->memory_use().now, before + 10000);
    auto pinned = *device->allocate_host(1 << 20);
    EXPECT_EQ(device->memory_use().now, before + 10000) << "pinned memory is the host's";
    EXPECT_EQ(static_cast<char*>(pinned.data())[12345], 0);
  }
  EXPECT_EQ(device->memory_use().now, before);
  EXPECT_EQ(device->memory_use().peak, before + 10000);
}

Role full("full", [] {
  auto device = open();
  auto memory = device->allocate(std::size_t(5) << 20);
  if (memory) return std::string("allocated");
  // The refusal is no fault of the device.
  const bool goes_on = device->allocate(100) && device->synchronize();
  return memory.error().text + (goes_on ? "; goes on" : "; stuck");
});

TEST(CudaDevice, SaysHowMuchMemoryWasNotThere) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in fails on request";
  // The first is cuBLAS's workspace.
  EXPECT_THAT(play({.role = "full", .everywhere = {{"FAKE_CUDA_FAIL", "malloc:2"}}}),
              ElementsAre("cuda:0: no 5 MiB more beside the 0 MiB of this process: out of memory; goes on"));
}

Role fault("fault", [] {
  auto device = open();
  auto memory = *device->allocate(4000);
  device->fill(memory.floats(), 1, 1000);
  device->fill(memory.floats(), 2, 1000);
  const auto mark = device->mark();
  const auto first = device->synchronize();
  const auto second = device->wait(mark);
  if (first || second) return std::string("no fault");
  return first.error().text + (first.error().text == second.error().text ? "" : ", then another");
});

TEST(CudaDevice, KeepsItsFirstFaultAndReturnsItAtEveryWait) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in fails on request";
  EXPECT_THAT(play({.role = "fault", .everywhere = {{"FAKE_CUDA_FAIL", "launch:2"}}}),
              ElementsAre("cuda:0: cudaLaunchKernel: an illegal memory access was encountered"));
}

TEST(CudaDevice, DoesWhatItIsGivenInOrder) {
  auto device = open();
  auto square = *device->allocate(kSquare);
  auto memory = *device->allocate(3 * sizeof(float));
  const std::vector<float> host = {1, 2, 3};
  slow_work(*device, square);
  device->upload(memory.data(), host.data(), memory.bytes());
  device->scale(memory.floats(), 10, 3);
  std::vector<float> back(3);
  device->download(back.data(), memory.data(), memory.bytes());
  const auto mark = device->mark();
  device->scale(memory.floats(), 10, 3);
  std::thread other([&] { EXPECT_TRUE(device->wait(mark)); });
  other.join();
  EXPECT_THAT(back, ElementsAre(10, 20, 30));
  EXPECT_THAT(contents(*device, memory), ElementsAre(100, 200, 300));
}

TEST(CudaDevice, TimesWhatLiesBetweenTwoMarks) {
  auto device = open();
  auto square = *device->allocate(kSquare);
  const auto start = device->mark();
  slow_work(*device, square);
  const auto middle = device->mark();
  const auto end = device->mark();
  ASSERT_TRUE(device->wait(end));
  EXPECT_GT(device->seconds(start, middle), 0);
  EXPECT_GE(device->seconds(start, end), device->seconds(start, middle));
}

// What a thread beside the lane stages out is what the lane had written by the mark, and no later.
std::string staged() {
  auto device = open();
  auto square = *device->allocate(kSquare);
  auto memory = *device->allocate(1000 * sizeof(float));
  slow_work(*device, square);
  device->fill(memory.floats(), 7, 1000);
  const auto written = device->mark();
  std::string said = "ok";
  std::thread other([&] {
    auto host = *device->allocate_host(memory.bytes());
    auto* floats = static_cast<float*>(host.data());
    if (!device->stage_out(floats, memory.data(), memory.bytes(), written)) said = "no way out";
    for (int i = 0; i < 1000; ++i) {
      if (floats[i] != 7) said = "read too early";
      floats[i] *= 2;
    }
    if (!device->stage_in(memory.data(), floats, memory.bytes())) said = "no way in";
  });
  other.join();
  device->add(memory.floats(), memory.floats(), 1000);
  for (const float value : contents(*device, memory)) {
    if (value != 28 && said == "ok") said = "written too late";
  }
  return said;
}
Role staging("staging", staged);

TEST(CudaDevice, StagesForAThreadBesideTheLane) { EXPECT_EQ(staged(), "ok"); }

TEST(CudaDevice, StagesTooEarlyWithoutItsWait) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "only a stand-in can lose waits";
  EXPECT_THAT(play({.role = "staging", .everywhere = {{"FAKE_CUDA_LOSE_WAITS", "1"}}}),
              ElementsAre("read too early"));
}

// A copy sees what its source had queued, and the source does not overwrite it before it is read.
Role peers("peers", [] {
  auto from = open(0);
  auto to = open(1);
  auto square = *from->allocate(kSquare);
  auto other_square = *to->allocate(kSquare);
  auto source = *from->allocate(1000 * sizeof(float));
  auto target = *to->allocate(1000 * sizeof(float));
  slow_work(*from, square);
  from->fill(source.floats(), 5, 1000);
  slow_work(*to, other_square);
  slow_work(*to, other_square);
  to->copy_from(target.floats(), *from, source.floats(), 1000);
  from->fill(source.floats(), 6, 1000);
  for (const float value : contents(*to, target)) {
    if (value != 5) return "copied " + std::to_string(int(value));
  }
  return std::string("ok, ") + (from->unique_id() == to->unique_id() ? "one GPU" : "two GPUs");
});

TEST(CudaDevice, CopiesFromAnotherInBothTheirOrders) {
  if (!world::on_stand_ins()) GTEST_SKIP() << "needs two devices";
  EXPECT_THAT(play({.role = "peers", .everywhere = {{"FAKE_CUDA_DEVICES", "2"}}}),
              ElementsAre("ok, two GPUs"));
  EXPECT_THAT(
      play({.role = "peers", .everywhere = {{"FAKE_CUDA_DEVICES", "2"}, {"FAKE_CUDA_LOSE_WAITS", "1"}}}),
      ElementsAre(HasSubstr("copied")));
}

TEST(CudaDevice, RefusesANcclGroupForAnIdOfTheWrongLength) {
  auto device = open();
  world::FileRendezvous rendezvous;
  const auto group = module().make_nccl(*device, "short", {}, rendezvous);
  ASSERT_FALSE(group);
  EXPECT_EQ(group.error().text, "NCCL's id has 128 bytes, got 5");
}

}  // namespace
