#include "dlaunch/devices.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "dlaunch/device_list.hpp"
#include "dlaunch/settings.hpp"

namespace dlaunch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class Devices : public testing::Test {
 protected:
  Devices() {
    std::string name = testing::TempDir() + "devicesXXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~Devices() override { std::filesystem::remove_all(root_); }

  void put(const std::string& path, const std::string& text) {
    std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  std::string root_;
};

TEST_F(Devices, CountsDeviceFilesAsCudaWould) {
  for (const char* name : {"nvidia3", "nvidia12", "nvidiactl", "nvidia-uvm", "nvidia", "null", "nvidia0x"}) {
    put(std::string("/dev/") + name, "");
  }
  EXPECT_THAT(gpu_files(root_), ElementsAre("0", "1"));
}

TEST_F(Devices, FindsNoGpuWhereThereIsNoSuchFolder) { EXPECT_THAT(gpu_files(root_), IsEmpty()); }

TEST(VisibleDevices, FollowCudasOwnReadingOfTheList) {
  EXPECT_THAT(visible_devices("0,1,6,7"), ElementsAre("0", "1", "6", "7"));
  EXPECT_THAT(visible_devices("0, 1, 2, -1, 3"), ElementsAre("0", "1", "2"));
  EXPECT_THAT(visible_devices("0, 1, 2, 1"), IsEmpty());
  EXPECT_THAT(visible_devices("1gpu2,2ampere"), ElementsAre("1gpu2", "2ampere"));
  EXPECT_THAT(visible_devices("2, +3, -0, 5"), ElementsAre("2", "+3", "-0", "5"));
  EXPECT_THAT(visible_devices("one,two,3,4"), IsEmpty());
  EXPECT_THAT(visible_devices("4,3,two,one"), ElementsAre("4", "3"));
  EXPECT_THAT(visible_devices("GPU-123, 2"), ElementsAre("GPU-123", "2"));
  EXPECT_THAT(visible_devices("MIG-a/1/0,MIG-b/1/0"), ElementsAre("MIG-a/1/0", "MIG-b/1/0"));
  EXPECT_THAT(visible_devices("-1"), IsEmpty());
  EXPECT_THAT(visible_devices(""), IsEmpty());
}

TEST(ListedDevices, KeepStringsAndRepetitionsUpToTheFirstNegative) {
  EXPECT_THAT(listed_devices("4, 5,GPU-a"), ElementsAre("4", "5", "GPU-a"));
  EXPECT_THAT(listed_devices("0,0"), ElementsAre("0", "0"));
  EXPECT_THAT(listed_devices("0,-1,1"), ElementsAre("0"));
  EXPECT_THAT(listed_devices(""), IsEmpty());
  EXPECT_THAT(listed_devices("-1"), IsEmpty());
}

TEST_F(Devices, CountsCoresRatherThanHyperThreads) {
  for (int cpu : {0, 2})
    put("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/core_cpus_list", "0,2\n");
  for (int cpu : {1, 3}) {
    put("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/thread_siblings_list", "1,3\n");
  }
  EXPECT_EQ(physical_cores(root_, {0, 1, 2, 3}), 2);
  EXPECT_EQ(physical_cores(root_, {0, 2}), 1);
  EXPECT_EQ(physical_cores(root_, {0, 1, 7, 8}), 4);  // no topology told for 7 and 8
}

TEST_F(Devices, FindsTheTightestQuotaOnTheWayUpInCgroup2) {
  put("/proc/self/cgroup", "0::/jobs/one\n");
  put("/sys/fs/cgroup/jobs/one/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  put("/sys/fs/cgroup/jobs/cpu.max", "250000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 2.5);
  put("/sys/fs/cgroup/jobs/one/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 1.5);
}

TEST_F(Devices, FindsTheQuotaOfANamespaceAtItsMount) {
  put("/proc/self/cgroup", "0::/\n");
  put("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(cpu_quota(root_), 4.0);
}

TEST_F(Devices, ReadsTheQuotaOfCgroup1) {
  put("/proc/self/cgroup", "5:memory:/x\n4:cpu,cpuacct:/docker/abc\n");
  put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n");
  put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  put("/sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(cpu_quota(root_), 3.0);
}

TEST_F(Devices, TakesAMissingOrBrokenQuotaForNone) {
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
  put("/proc/self/cgroup", "nonsense\n0::/a\n");
  put("/sys/fs/cgroup/a/cpu.max", "x y\n");
  EXPECT_EQ(cpu_quota(root_), std::nullopt);
}

TEST(WithinQuota, RoundsDownAndLeavesOne) {
  EXPECT_EQ(within_quota(8, std::nullopt), 8);
  EXPECT_EQ(within_quota(8, 2.9), 2);
  EXPECT_EQ(within_quota(8, 0.5), 1);
  EXPECT_EQ(within_quota(2, 16.0), 2);
  EXPECT_EQ(within_quota(0, std::nullopt), 1);
}

TEST(ThisMachine, SeesItsOwnFilesAndCpus) {
  Machine machine = this_machine();
  EXPECT_GE(machine.cpus(), 1);
  EXPECT_GE(machine.cores(), 1);
  EXPECT_TRUE(machine.is_executable_file("/proc/self/exe"));
  EXPECT_TRUE(machine.is_folder("/proc"));
  EXPECT_FALSE(machine.is_readable_file("/proc"));
  EXPECT_EQ(machine.read_file("/proc/self/exe", 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(machine.read_file("/no/such/file", 4), "");
  EXPECT_EQ(machine.own_folder[0], '/');
}

}  // namespace
}  // namespace dlaunch
