#include "dlaunch/worker_env.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dlaunch {
namespace {

using testing::ElementsAre;
using testing::IsSupersetOf;
using testing::Pair;

// Two nodes, of 2 and 3 workers; this is node 1.
struct WorkerEnv : testing::Test {
  WorkerEnv() {
    round.number = 2;
    round.layout.nodes = {{"a", 2, "actor"}, {"b", 3, "learner"}};
    round.node = 1;
    round.master_addr = "gpu-a";
    round.master_port = 29500;
    job.nnodes = 2;
    job.nproc = 3;
    job.max_restarts = 4;
    job.run_id = "run7";
    job.gpus = {"4", "GPU-b", "6"};
    job.program.prefix = {"python3", "-u", "x.py"};
    job.program.arguments = {"--lr", "3"};
  }
  Environment environment(int local = 1, Environment::Map inherited = {}) const {
    return worker_environment(job, round, local, Environment(std::move(inherited)), "/logs/error.json");
  }
  std::string value(const char* name, int local = 1, Environment::Map inherited = {}) const {
    return environment(local, std::move(inherited)).get(name).value_or("unset");
  }

  Job job;
  Round round;
};

TEST_F(WorkerEnv, IsTorchrunsContractAndTheNodeRank) {
  job.omp_threads = 5;
  EXPECT_THAT(environment().values(),
              ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "4,GPU-b,6"), Pair("GROUP_RANK", "1"),
                          Pair("GROUP_WORLD_SIZE", "2"), Pair("LOCAL_RANK", "1"),
                          Pair("LOCAL_WORLD_SIZE", "3"), Pair("MASTER_ADDR", "gpu-a"),
                          Pair("MASTER_PORT", "29500"), Pair("NCCL_ASYNC_ERROR_HANDLING", "1"),
                          Pair("NODE_RANK", "1"), Pair("OMP_NUM_THREADS", "5"), Pair("RANK", "3"),
                          Pair("ROLE_NAME", "learner"), Pair("ROLE_RANK", "1"), Pair("ROLE_WORLD_SIZE", "3"),
                          Pair("TORCHELASTIC_ERROR_FILE", "/logs/error.json"),
                          Pair("TORCHELASTIC_MAX_RESTARTS", "4"), Pair("TORCHELASTIC_RESTART_COUNT", "2"),
                          Pair("TORCHELASTIC_RUN_ID", "run7"), Pair("TORCHELASTIC_USE_AGENT_STORE", "True"),
                          Pair("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"), Pair("WORLD_SIZE", "5")));
}

TEST_F(WorkerEnv, KeepsWhatItInheritsAndOverwritesWhatIsStale) {
  Environment::Map outer{{"HOME", "/root"},
                         {"RANK", "77"},
                         {"WORLD_SIZE", "99"},
                         {"TORCHELASTIC_RUN_ID", "outer"},
                         {"TORCHELASTIC_ERROR_FILE", "/outer"},
                         {"PET_NNODES", "2"},
                         {"DLAUNCH_STORE", "agent"}};
  EXPECT_EQ(value("HOME", 1, outer), "/root");
  EXPECT_EQ(value("RANK", 1, outer), "3");
  EXPECT_EQ(value("WORLD_SIZE", 1, outer), "5");
  EXPECT_EQ(value("TORCHELASTIC_RUN_ID", 1, outer), "run7");
  EXPECT_EQ(value("TORCHELASTIC_ERROR_FILE", 1, outer), "/logs/error.json");
  EXPECT_EQ(value("PET_NNODES", 1, outer), "2");
}

TEST_F(WorkerEnv, NeverHandsOnTheToken) {
  EXPECT_EQ(value("DLAUNCH_TOKEN", 0, {{"DLAUNCH_TOKEN", "s"}}), "unset");
}

TEST_F(WorkerEnv, RemovesTheCopyIndexOfAnOuterJobButNotTheUsersOwn) {
  EXPECT_EQ(value("PROCESS_NUM", 0, {{"PROCESS_NUM", "3"}, {"PROCESS_INDEX", "1"}, {"LOCAL_RANK", "0"}}),
            "unset");
  EXPECT_EQ(value("PROCESS_NUM", 0, {{"PROCESS_NUM", "3"}}), "3");
}

TEST_F(WorkerEnv, SaysWhoHostsTheStore) {
  round.store = StoreHost::worker;
  round.master_port = 4242;
  EXPECT_EQ(value("TORCHELASTIC_USE_AGENT_STORE"), "False");
  EXPECT_EQ(value("MASTER_PORT"), "4242");
}

TEST_F(WorkerEnv, KeepsTheUsersErrorHandlingUnderBothNames) {
  EXPECT_EQ(value("NCCL_ASYNC_ERROR_HANDLING", 0, {{"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}}), "3");
  EXPECT_EQ(value("TORCH_NCCL_ASYNC_ERROR_HANDLING", 0, {{"NCCL_ASYNC_ERROR_HANDLING", "0"}}), "0");
  Environment::Map both{{"NCCL_ASYNC_ERROR_HANDLING", "0"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}};
  EXPECT_EQ(value("NCCL_ASYNC_ERROR_HANDLING", 0, both), "0");
  EXPECT_EQ(value("TORCH_NCCL_ASYNC_ERROR_HANDLING", 0, both), "3");
}

TEST_F(WorkerEnv, LeavesOmpNumThreadsAloneUnlessTheJobSaysOtherwise) {
  EXPECT_EQ(value("OMP_NUM_THREADS"), "unset");
  EXPECT_EQ(value("OMP_NUM_THREADS", 0, {{"OMP_NUM_THREADS", "9"}}), "9");
  job.omp_threads = 2;
  EXPECT_EQ(value("OMP_NUM_THREADS", 0, {{"OMP_NUM_THREADS", "9"}}), "2");
}

TEST_F(WorkerEnv, NeverRenumbersTheListOfTheNode) {
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 1, {{"CUDA_VISIBLE_DEVICES", " 4, GPU-b,6"}}), " 4, GPU-b,6");
  job.gpus = {};
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 1, {{"CUDA_VISIBLE_DEVICES", ""}}), "");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 1, {{"CUDA_VISIBLE_DEVICES", "-1"}}), "-1");
}

TEST_F(WorkerEnv, GivesEachWorkerItsOwnEntry) {
  job.gpu_bind = GpuBind::single;
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 0), "4");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 1, {{"CUDA_VISIBLE_DEVICES", "4,GPU-b,6"}}), "GPU-b");
  EXPECT_EQ(value("LOCAL_RANK", 1), "1");
  job.gpus = {"4", "5"};
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 2), "4");  // shared round robin
  job.gpus = {};
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 2), "");
}

TEST_F(WorkerEnv, HidesTheLocalRankWhereItIsVirtual) {
  job.gpu_bind = GpuBind::virtual_rank;
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 2), "6");
  EXPECT_EQ(value("LOCAL_RANK", 2), "0");
  EXPECT_EQ(value("LOCAL_WORLD_SIZE", 2), "3");
  EXPECT_EQ(value("RANK", 2), "4");
}

TEST_F(WorkerEnv, LeavesDevicesUntouchedWhenToldSo) {
  job.gpu_bind = GpuBind::none;
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES"), "unset");
  EXPECT_EQ(value("CUDA_VISIBLE_DEVICES", 1, {{"CUDA_VISIBLE_DEVICES", "1,2"}}), "1,2");
}

TEST_F(WorkerEnv, GivesIndependentCopiesNoGroup) {
  job.copies = Copies{.count = 3};
  job.gpu_bind = GpuBind::single;
  Environment copy = environment(1, {{"MASTER_ADDR", "x"},
                                     {"MASTER_PORT", "1"},
                                     {"TORCHELASTIC_RUN_ID", "o"},
                                     {"TORCHELASTIC_X", "o"},
                                     {"GROUP_RANK", "1"},
                                     {"GROUP_WORLD_SIZE", "1"},
                                     {"ROLE_NAME", "r"},
                                     {"ROLE_RANK", "1"},
                                     {"ROLE_WORLD_SIZE", "1"}});
  EXPECT_THAT(copy.values(),
              ElementsAre(Pair("CUDA_VISIBLE_DEVICES", "GPU-b"), Pair("LOCAL_RANK", "0"),
                          Pair("LOCAL_WORLD_SIZE", "1"), Pair("NODE_RANK", "0"), Pair("PROCESS_INDEX", "1"),
                          Pair("PROCESS_NUM", "3"), Pair("RANK", "0"), Pair("WORLD_SIZE", "1")));
}

TEST_F(WorkerEnv, KeepsThePlaceOfACopyThatRunsAlone) {
  job.copies = Copies{.count = 3, .only = 2};
  job.gpu_bind = GpuBind::single;
  EXPECT_THAT(environment(0).values(),
              IsSupersetOf({std::pair<const std::string, std::string>("PROCESS_INDEX", "2"),
                            {"PROCESS_NUM", "3"},
                            {"CUDA_VISIBLE_DEVICES", "6"}}));
  EXPECT_THAT(worker_arguments(job, round, 0), ElementsAre("python3", "-u", "x.py", "--process_index", "2",
                                                           "--process_num", "3", "--lr", "3"));
}

TEST_F(WorkerEnv, GivesCopiesOfAGroupRanksAndIndices) {
  job.copies = Copies{.count = 2, .group = true};
  round.layout.nodes = {{"a", 2, "default"}};
  round.node = 0;
  EXPECT_EQ(value("RANK", 1), "1");
  EXPECT_EQ(value("WORLD_SIZE", 1), "2");
  EXPECT_EQ(value("MASTER_ADDR", 1), "gpu-a");
  EXPECT_EQ(value("PROCESS_INDEX", 1), "1");
}

TEST_F(WorkerEnv, PutsInjectedArgumentsFirstBehindTheScript) {
  job.program.local_rank_flag = "--local_rank";
  EXPECT_THAT(worker_arguments(job, round, 1),
              ElementsAre("python3", "-u", "x.py", "--local_rank=1", "--lr", "3"));
  job.copies = Copies{.count = 2};
  EXPECT_THAT(worker_arguments(job, round, 1),
              ElementsAre("python3", "-u", "x.py", "--process_index", "1", "--process_num", "2",
                          "--local_rank=0", "--lr", "3"));
}

TEST_F(WorkerEnv, InjectsNothingIntoAWrapper) {
  job.program.local_rank_flag = "--local_rank";
  job.program.takes_injected = false;
  job.copies = Copies{.count = 2};
  EXPECT_THAT(worker_arguments(job, round, 1), ElementsAre("python3", "-u", "x.py", "--lr", "3"));
}

TEST_F(WorkerEnv, PassesTheLocalRankThatTheEnvironmentShows) {
  job.program.local_rank_flag = "--local-rank";
  job.gpu_bind = GpuBind::virtual_rank;
  EXPECT_EQ(worker_arguments(job, round, 1)[3], "--local-rank=0");
}

TEST_F(WorkerEnv, ReplacesTheMacroWithItsBracesAndNothingElse) {
  job.program.arguments = {
      "${local_rank}", "a${local_rank}b${local_rank}", "$local_rank", "$$", "${rank}", "I'm", ""};
  EXPECT_THAT(worker_arguments(job, round, 2),
              ElementsAre("python3", "-u", "x.py", "2", "a2b2", "$local_rank", "$$", "${rank}", "I'm", ""));
  job.program.prefix = {"python", "part${local_rank}.py"};
  EXPECT_EQ(worker_arguments(job, round, 2)[1], "part2.py");
}

}  // namespace
}  // namespace dlaunch
