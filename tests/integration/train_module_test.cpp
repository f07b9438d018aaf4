#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "trainer/module/open.hpp"

namespace trainer {
namespace {

const std::string kStrangeModule =
    std::filesystem::read_symlink("/proc/self/exe").parent_path() / "strange_module.so";

TEST(Module, ThatIsNotThereIsNamed) {
  const auto module = open_module<HostModule>("/nonexistent/train_host.so", "train_host_module");
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, Errc::not_found);
  EXPECT_EQ(module.error().text.substr(0, 45), "'/nonexistent/train_host.so' was not opened: ");
  EXPECT_NE(module.error().text.find("No such file"), std::string::npos) << module.error().text;
  EXPECT_FALSE(module.error().hint.empty());
}

TEST(Module, ThatIsNoSharedObjectIsNamedWithTheLoadersReason) {
  const auto path =
      std::filesystem::temp_directory_path() / ("train_module_test." + std::to_string(::getpid()));
  std::ofstream(path) << std::string(4096, '?');
  const auto module = open_module<HostModule>(path, "train_host_module");
  std::filesystem::remove(path);
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().code, Errc::failed);
  EXPECT_NE(module.error().text.find(path.string()), std::string::npos);
  EXPECT_NE(module.error().text.find("invalid ELF header"), std::string::npos) << module.error().text;
}

TEST(Module, WithoutItsFunctionIsRefused) {
  const auto module = open_module<CudaModule>(kStrangeModule, "train_cuda_module");
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().text, "'" + kStrangeModule + "' has no function 'train_cuda_module'");
}

TEST(Module, OfAnotherBuildIsRefused) {
  const auto module = open_module<HostModule>(kStrangeModule, "train_host_module");
  ASSERT_FALSE(module);
  EXPECT_EQ(module.error().text, "'" + kStrangeModule +
                                     "' is of build '0.0.1 interface 0', the program of '" +
                                     std::string(kModuleBuild) + "'");
}

TEST(Module, OfTheHostIsOpenedOnceWithOneThreadForOpenBlas) {
  ::unsetenv("OPENBLAS_NUM_THREADS");
  const auto module = host_module();
  ASSERT_NE(std::getenv("OPENBLAS_NUM_THREADS"), nullptr);
  EXPECT_STREQ(std::getenv("OPENBLAS_NUM_THREADS"), "1");
  if (!module) GTEST_SKIP() << module.error().text;
  EXPECT_EQ(*module, *host_module());
  EXPECT_EQ((*module)->describe().substr(0, 8), "OpenBLAS");
}

}  // namespace
}  // namespace trainer
