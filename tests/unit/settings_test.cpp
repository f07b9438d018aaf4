#include "dlaunch/settings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include "fake_machine.hpp"

namespace dlaunch {
namespace {

using std::chrono::seconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Flags = std::map<std::string, std::string>;
using Variables = Environment::Map;

class SettingsTest : public testing::Test {
 protected:
  SettingsTest() {
    machine_.add("train.py", "print(1)\n");
    machine_.add("/usr/bin/prog", kElf, true);
  }

  Result<Settings> settled(Flags flags, Variables variables = {},
                           std::vector<std::string> program = {"train.py"}) {
    variables.emplace("PATH", "/usr/bin");
    return settle(Typed{std::move(flags), std::move(program), invoked_as_}, Environment(variables),
                  machine_.view());
  }
  Settings good(Flags flags, Variables variables = {}, std::vector<std::string> program = {"train.py"}) {
    auto settings = settled(std::move(flags), std::move(variables), std::move(program));
    EXPECT_TRUE(settings) << (settings ? "" : settings.error().text);
    return settings ? *settings : Settings{};
  }
  Job job(Flags flags, Variables variables = {}, std::vector<std::string> program = {"train.py"}) {
    return good(std::move(flags), std::move(variables), std::move(program)).job;
  }
  std::string refused(Flags flags, Variables variables = {},
                      std::vector<std::string> program = {"train.py"}) {
    auto settings = settled(std::move(flags), std::move(variables), std::move(program));
    if (settings) return "accepted";
    EXPECT_EQ(settings.error().code, Errc::usage);
    EXPECT_NE(settings.error().hint, "") << settings.error().text;
    return settings.error().text + "\n" + settings.error().hint;
  }
  static Origin origin(const Settings& settings, const std::string& flag) {
    for (const auto& [name, origin] : settings.origins) {
      if (name == flag) return origin;
    }
    return {"no such setting", flag};
  }

  FakeMachine machine_;
  std::string invoked_as_ = "dlaunch";
};

// --- precedence ---

TEST_F(SettingsTest, HasDefaultsForOneNode) {
  Settings settings = good({});
  const Job& job = settings.job;
  EXPECT_EQ(job.nnodes, 1);
  EXPECT_EQ(job.node_rank, 0);
  EXPECT_EQ(job.nproc, 1);
  EXPECT_EQ(job.run_id, "none");
  EXPECT_EQ(job.role, "default");
  EXPECT_EQ(job.master_addr, "127.0.0.1");
  EXPECT_FALSE(job.master_addr_given);
  EXPECT_EQ(job.master_port, 0);
  EXPECT_EQ(job.join_timeout, seconds(900));
  EXPECT_EQ(job.heartbeat_timeout, seconds(30));
  EXPECT_EQ(job.shutdown_timeout, seconds(30));
  EXPECT_EQ(job.max_restarts, 0);
  EXPECT_EQ(job.stop_signals, (std::set<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT}));
  EXPECT_EQ(job.store, StoreHost::agent);
  EXPECT_EQ(job.gpu_bind, GpuBind::node);
  EXPECT_FALSE(job.copies);
  EXPECT_EQ(job.omp_threads, std::nullopt);
  EXPECT_FALSE(job.redirects.any() || job.tee.any());
  EXPECT_EQ(settings.log_level, "warning");
  EXPECT_EQ(settings.ask, Settings::Ask::run);
  EXPECT_THAT(settings.warnings, IsEmpty());
  EXPECT_THAT(settings.debug, IsEmpty());
  EXPECT_EQ(origin(settings, "nnodes").source, "default");
}

TEST_F(SettingsTest, LetsAFlagWinOverDlaunchVariablesAndThoseOverPetVariables) {
  Variables all{{"DLAUNCH_NPROC_PER_NODE", "3"}, {"PET_NPROC_PER_NODE", "4"}};
  Settings by_flag = good({{"nproc_per_node", "2"}}, all);
  EXPECT_EQ(by_flag.job.nproc, 2);
  EXPECT_EQ(origin(by_flag, "nproc_per_node").source, "--nproc_per_node");
  Settings by_own = good({}, all);
  EXPECT_EQ(by_own.job.nproc, 3);
  EXPECT_EQ(origin(by_own, "nproc_per_node").source, "DLAUNCH_NPROC_PER_NODE");
  Settings by_pet = good({}, {{"PET_NPROC_PER_NODE", "4"}});
  EXPECT_EQ(by_pet.job.nproc, 4);
  EXPECT_EQ(origin(by_pet, "nproc_per_node").source, "PET_NPROC_PER_NODE");
}

TEST_F(SettingsTest, LetsBareAddressAndPortComeLastAndForSeveralNodesOnly) {
  Variables bare{{"MASTER_ADDR", "gpu-a"}, {"MASTER_PORT", "1234"}};
  Settings several = good({{"nnodes", "2"}, {"node_rank", "1"}}, bare);
  EXPECT_EQ(several.job.master_addr, "gpu-a");
  EXPECT_EQ(several.job.master_port, 1234);
  EXPECT_EQ(origin(several, "master_port").source, "MASTER_PORT");
  EXPECT_EQ(job({}, bare).master_addr, "127.0.0.1");
  EXPECT_EQ(job({}, bare).master_port, 0);
  bare["PET_MASTER_ADDR"] = "gpu-b";
  EXPECT_EQ(job({{"nnodes", "2"}}, bare).master_addr, "gpu-b");
}

TEST_F(SettingsTest, IgnoresBareRanksOfAStaleShell) {
  Job settled = job({}, {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"NODE_RANK", "1"}, {"LOCAL_RANK", "x"}});
  EXPECT_EQ(settled.nnodes, 1);
  EXPECT_EQ(settled.node_rank, 0);
}

TEST_F(SettingsTest, DoesNotLookAtLosingValues) {
  EXPECT_EQ(job({{"nnodes", "1"}}, {{"PET_NNODES", "garbage"}}).nnodes, 1);
  EXPECT_EQ(job({{"nnodes", "2"}, {"master_addr", "a"}, {"master_port", "1"}}, {{"MASTER_PORT", "garbage"}})
                .master_port,
            1);
}

TEST_F(SettingsTest, TakesAnEmptyVariableForUnsetAndAnEmptySwitchForOn) {
  EXPECT_EQ(job({}, {{"PET_NPROC_PER_NODE", ""}}).nproc, 1);
  Settings settings = good({}, {{"PET_STANDALONE", ""}});
  EXPECT_EQ(origin(settings, "standalone").value, "on");
  EXPECT_EQ(origin(good({}, {{"PET_STANDALONE", "0"}}), "standalone").value, "off");
  EXPECT_EQ(refused({}, {{"PET_STANDALONE", "maybe"}}),
            "PET_STANDALONE='maybe' is neither on nor off\ngive 1 or 0");
}

TEST_F(SettingsTest, ListsOriginsInTheOrderOfTheHelp) {
  Settings settings = good({});
  ASSERT_GT(settings.origins.size(), 30u);
  EXPECT_EQ(settings.origins.front().first, "nnodes");
  EXPECT_EQ(settings.origins.back().first, "log_level");
}

// --- conflicts ---

TEST_F(SettingsTest, StopsWhenTwoOriginsOfTheDecidingTierDisagree) {
  EXPECT_EQ(refused({{"nnodes", "2"}, {"rdzv_endpoint", "a:1"}, {"master_addr", "b"}}),
            "--rdzv_endpoint 'a:1' and --master_addr 'b' disagree about the address of node 0\nkeep one of "
            "the two");
  EXPECT_EQ(refused({{"nnodes", "2"}, {"rdzv_endpoint", "a:1"}, {"master_port", "2"}}),
            "--rdzv_endpoint 'a:1' and --master_port '2' disagree about the port\nkeep one of the two");
  EXPECT_EQ(refused({}, {{"PET_RDZV_ENDPOINT", "a:1"}, {"PET_MASTER_ADDR", "b"}}),
            "PET_RDZV_ENDPOINT='a:1' and PET_MASTER_ADDR='b' disagree about the address of node 0\nkeep one "
            "of the two");
  EXPECT_EQ(refused({{"join_timeout", "5"}, {"rdzv_conf", "timeout=6"}}),
            "--join_timeout '5' and --rdzv_conf timeout= '6' disagree about how long to wait for all nodes\n"
            "keep one of the two");
  EXPECT_EQ(refused({{"gpu_bind", "single"}, {"virtual_local_rank", "1"}}),
            "--gpu_bind 'single' and --virtual_local_rank disagree about how GPUs are shared out\nkeep one "
            "of the two");
}

TEST_F(SettingsTest, AcceptsTwoOriginsThatMeanTheSame) {
  EXPECT_EQ(job({{"rdzv_endpoint", "a:0029"}, {"master_addr", "a"}, {"master_port", "29"}}).master_port, 29);
  EXPECT_EQ(job({{"rdzv_endpoint", "[::1]:29"}, {"master_addr", "::1"}}).master_addr, "::1");
  EXPECT_EQ(job({{"join_timeout", "60"}, {"rdzv_conf", "timeout=060"}}).join_timeout, seconds(60));
}

TEST_F(SettingsTest, LetsAHigherTierWinWithoutComparingIt) {
  EXPECT_EQ(job({{"master_addr", "b"}}, {{"PET_RDZV_ENDPOINT", "a:1"}}).master_addr, "b");
  EXPECT_EQ(job({{"standalone", "1"}}, {{"PET_NNODES", "4"}, {"PET_NODE_RANK", "3"}}).nnodes, 1);
}

// --- size and place ---

TEST_F(SettingsTest, ReadsTheNumberOfNodes) {
  EXPECT_EQ(job({{"nnodes", "3"}}).nnodes, 3);
  EXPECT_EQ(job({{"nnodes", "3:3"}}).nnodes, 3);
  EXPECT_EQ(job({{"nnodes", " +3 "}}).nnodes, 3);
}

TEST_F(SettingsTest, RefusesNumbersOfNodesThatAreNone) {
  const std::string hint = "\ngive a whole number from 1 to 100000";
  EXPECT_EQ(refused({{"nnodes", "0"}}), "--nnodes '0' is below 1" + hint);
  EXPECT_EQ(refused({{"nnodes", "-2"}}), "--nnodes '-2' is below 1" + hint);
  EXPECT_EQ(refused({{"nnodes", "0:0"}}), "--nnodes '0' is below 1" + hint);
  EXPECT_EQ(refused({{"nnodes", "two"}}), "--nnodes 'two' is not a number of nodes" + hint);
  EXPECT_EQ(refused({{"nnodes", "1.5"}}), "--nnodes '1.5' is not a number of nodes" + hint);
  EXPECT_EQ(refused({{"nnodes", "1:2:3"}}), "--nnodes '1:2:3' is not a number of nodes" + hint);
  EXPECT_EQ(refused({{"nnodes", "99999999999999999999"}}),
            "--nnodes '99999999999999999999' is not a number of nodes" + hint);
  EXPECT_EQ(refused({{"nnodes", "100001"}}), "--nnodes '100001' is above 100000" + hint);
  EXPECT_EQ(refused({}, {{"PET_NNODES", "0"}}), "PET_NNODES='0' is below 1" + hint);
  EXPECT_EQ(refused({{"nnodes", ""}}), "--nnodes '' is empty\nis a variable in the command unset?");
}

TEST_F(SettingsTest, RefusesARangeOfNodesByName) {
  EXPECT_EQ(refused({{"nnodes", "1:4"}}),
            "--nnodes '1:4' asks for a job that grows and shrinks, which is not built yet\n"
            "give one number: --nnodes 4");
}

TEST_F(SettingsTest, RefusesANodeRankOutsideTheJob) {
  EXPECT_EQ(refused({{"node_rank", "3"}}),
            "--node_rank '3' is outside 0..0\nnodes are counted from 0, and --nnodes says how many: here 1");
  EXPECT_EQ(refused({{"nnodes", "2"}, {"node_rank", "2"}, {"master_addr", "a"}}),
            "--node_rank '2' is outside 0..1\nnodes are counted from 0, and --nnodes says how many: here 2");
  EXPECT_THAT(refused({{"nnodes", "2"}, {"node_rank", "-1"}}), HasSubstr("--node_rank '-1' is outside 0..1"));
  EXPECT_EQ(refused({{"node_rank", "x"}}), "--node_rank 'x' is not a node rank\nnodes are counted from 0");
  EXPECT_THAT(refused({{"node_rank", ""}}), HasSubstr("--node_rank '' is empty"));
}

TEST_F(SettingsTest, RefusesANodeRankAboveZeroWithoutAnAddress) {
  EXPECT_EQ(refused({{"nnodes", "2"}, {"node_rank", "1"}}),
            "--node_rank '1' needs --master_addr\ngive the address of node 0, the same on every node");
  EXPECT_EQ(job({{"nnodes", "2"}, {"node_rank", "1"}, {"master_addr", "a"}}).node_rank, 1);
  EXPECT_EQ(job({{"nnodes", "2"}}).node_rank, 0);
}

TEST_F(SettingsTest, CountsWorkersByWord) {
  machine_.gpus = 2;
  EXPECT_EQ(job({{"nproc_per_node", "gpu"}}).nproc, 2);
  EXPECT_EQ(job({{"nproc_per_node", "auto"}}).nproc, 2);
  EXPECT_EQ(job({{"nproc_per_node", "cpu"}}).nproc, 4);
  EXPECT_EQ(job({{"nproc_per_node", "gpu"}}, {{"CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b,GPU-c"}}).nproc, 3);
  EXPECT_EQ(job({{"nproc_per_node", "auto"}}, {{"CUDA_VISIBLE_DEVICES", ""}}).nproc, 4);
  EXPECT_EQ(origin(good({}, {{"PET_NPROC_PER_NODE", "auto"}}), "nproc_per_node").source,
            "PET_NPROC_PER_NODE auto");
  machine_.gpus = 0;
  EXPECT_EQ(job({{"nproc_per_node", "auto"}}).nproc, 4);
}

TEST_F(SettingsTest, RefusesGpuWhereThereIsNoneAndSaysWhereItLooked) {
  EXPECT_EQ(
      refused({{"nproc_per_node", "gpu"}}),
      "--nproc_per_node 'gpu' finds no GPU: CUDA_VISIBLE_DEVICES is not set and there is no /dev/nvidia0\n"
      "give the number of workers: --nproc_per_node 1");
  EXPECT_THAT(refused({{"nproc_per_node", "gpu"}}, {{"CUDA_VISIBLE_DEVICES", "-1"}}),
              HasSubstr("finds no GPU: CUDA_VISIBLE_DEVICES='-1' shows none"));
}

TEST_F(SettingsTest, RefusesNumbersOfWorkersThatAreNone) {
  const std::string hint = "\ngive a whole number from 1 to 10000, or gpu, cpu, auto";
  EXPECT_EQ(refused({{"nproc_per_node", "0"}}), "--nproc_per_node '0' is below 1" + hint);
  EXPECT_EQ(refused({{"nproc_per_node", "-1"}}), "--nproc_per_node '-1' is below 1" + hint);
  EXPECT_EQ(refused({{"nproc_per_node", "train.py"}}),
            "--nproc_per_node 'train.py' is not a number of workers" + hint);
}

TEST_F(SettingsTest, KeepsTheRole) {
  EXPECT_EQ(job({{"role", "trainer"}}).role, "trainer");
  EXPECT_THAT(refused({{"role", ""}}), HasSubstr("--role '' is empty"));
}

// --- where the nodes meet ---

TEST_F(SettingsTest, UsesTorchsPortsForSeveralNodes) {
  EXPECT_EQ(job({{"nnodes", "2"}}).master_port, 29500);
  EXPECT_EQ(job({{"nnodes", "2"}, {"rdzv_endpoint", "a"}}).master_port, 29400);
  EXPECT_EQ(job({{"nnodes", "2"}, {"rdzv_endpoint", "a"}, {"master_port", "7"}}).master_port, 7);
  EXPECT_EQ(job({{"rdzv_endpoint", "a"}}).master_port, 0);
}

TEST_F(SettingsTest, TakesPortZeroForAnyFreePortOnOneNodeAlone) {
  EXPECT_EQ(job({{"master_port", "0"}}).master_port, 0);
  EXPECT_EQ(job({{"rdzv_backend", "c10d"}, {"rdzv_endpoint", "localhost:0"}}).master_port, 0);
  const std::string rest =
      " asks for any free port, which several nodes cannot agree on\n"
      "give a port, the same on every node";
  EXPECT_EQ(refused({{"nnodes", "2"}, {"master_port", "0"}}), "--master_port '0'" + rest);
  EXPECT_EQ(refused({{"nnodes", "2"}, {"rdzv_endpoint", "a:0"}}), "--rdzv_endpoint 'a:0'" + rest);
}

TEST_F(SettingsTest, RefusesGarbagePorts) {
  const std::string hint = "\ngive a whole number from 0 to 65535";
  EXPECT_EQ(refused({{"master_port", "abc"}}), "--master_port 'abc' is not a port" + hint);
  EXPECT_EQ(refused({{"master_port", "70000"}}), "--master_port '70000' is above 65535" + hint);
  EXPECT_EQ(refused({{"master_port", "-1"}}), "--master_port '-1' is below 0" + hint);
  EXPECT_EQ(refused({{"master_port", "0x10"}}), "--master_port '0x10' is not a port" + hint);
  EXPECT_EQ(refused({{"store_port", "1e3"}}), "--store_port '1e3' is not a port" + hint);
  EXPECT_EQ(refused({{"nnodes", "2"}}, {{"MASTER_PORT", "x"}}), "MASTER_PORT='x' is not a port" + hint);
}

TEST_F(SettingsTest, ReadsEndpointsOfAllKinds) {
  auto endpoint = [&](const std::string& text) {
    Job read = job({{"nnodes", "2"}, {"rdzv_endpoint", text}});
    return read.master_addr + " " + std::to_string(read.master_port);
  };
  EXPECT_EQ(endpoint("gpu-a:7"), "gpu-a 7");
  EXPECT_EQ(endpoint("10.0.0.1"), "10.0.0.1 29400");
  EXPECT_EQ(endpoint("[fd00::1]:7"), "fd00::1 7");
  EXPECT_EQ(endpoint("[fd00::1]"), "fd00::1 29400");
  EXPECT_EQ(endpoint("::1"), "::1 29400");
}

TEST_F(SettingsTest, RefusesEndpointsThatAreNone) {
  auto endpoint = [&](const std::string& text) {
    std::string all = refused({{"rdzv_endpoint", text}});
    return all.substr(0, all.find('\n'));
  };
  EXPECT_EQ(endpoint(":7"), "--rdzv_endpoint ':7' names no host");
  EXPECT_EQ(endpoint("a:"), "--rdzv_endpoint 'a:' has no port from 0 to 65535");
  EXPECT_EQ(endpoint("a:x"), "--rdzv_endpoint 'a:x' has no port from 0 to 65535");
  EXPECT_EQ(endpoint("a:65536"), "--rdzv_endpoint 'a:65536' has no port from 0 to 65535");
  EXPECT_EQ(endpoint("[::1"), "--rdzv_endpoint '[::1' has no closing bracket");
  EXPECT_EQ(endpoint("[host]:1"), "--rdzv_endpoint '[host]:1' has no IPv6 address in its brackets");
  EXPECT_EQ(endpoint("[::1]7"), "--rdzv_endpoint '[::1]7' goes on after its bracket without a colon");
  EXPECT_EQ(endpoint("a b"), "--rdzv_endpoint 'a b' is not a host");
}

TEST_F(SettingsTest, RefusesAddressesThatAreNone) {
  EXPECT_EQ(refused({{"master_addr", "a:1"}}),
            "--master_addr 'a:1' has a port\ngive the port with --master_port");
  EXPECT_EQ(refused({{"master_addr", ""}}), "--master_addr '' is empty\nis a variable in the command unset?");
  EXPECT_EQ(refused({{"master_addr", "-h"}}),
            "--master_addr '-h' is not the name or address of a host\ngive a host name or an IP address");
  EXPECT_EQ(refused({{"master_addr", "a b"}}),
            "--master_addr 'a b' is not the name or address of a host\ngive a host name or an IP address");
}

TEST_F(SettingsTest, KeepsAnAddressAsItWasGiven) {
  for (const char* address : {"gpu-a.example", "10.0.0.1", "localhost", "::1", "fe80::1%eth0"}) {
    EXPECT_EQ(job({{"master_addr", address}}).master_addr, address);
    EXPECT_TRUE(job({{"master_addr", address}}).master_addr_given);
  }
  EXPECT_EQ(job({{"master_addr", "[::1]"}}).master_addr, "::1");
}

TEST_F(SettingsTest, LeavesTheNodeRankToTheCoordinatorWithC10d) {
  Flags c10d{{"nnodes", "2"}, {"rdzv_backend", "c10d"}, {"rdzv_endpoint", "a:1"}, {"rdzv_id", "x"}};
  EXPECT_EQ(job(c10d).node_rank, std::nullopt);
  EXPECT_EQ(job(c10d).run_id, "x");
  EXPECT_EQ(job(c10d, {{"PET_NODE_RANK", "1"}}).node_rank,
            std::nullopt);  // an operator's, torchrun ignores it
  EXPECT_EQ(job({{"rdzv_backend", "c10d"}}).node_rank, 0);
  c10d["node_rank"] = "1";
  EXPECT_EQ(job(c10d).node_rank, 1);
}

TEST_F(SettingsTest, RefusesC10dOfSeveralNodesWithoutAPlaceToMeet) {
  EXPECT_EQ(refused({{"nnodes", "2"}, {"rdzv_backend", "c10d"}}),
            "--rdzv_backend c10d with 2 nodes needs --rdzv_endpoint\n"
            "give host:port of one of the nodes, the same on every node");
}

TEST_F(SettingsTest, RefusesBackendsThatItDoesNotSpeak) {
  for (const char* name : {"etcd", "etcd-v2"}) {
    EXPECT_EQ(refused({{"rdzv_backend", name}}),
              std::string("--rdzv_backend '") + name +
                  "' needs an etcd server, which dlaunch does not use\n"
                  "--rdzv_backend c10d with the same --rdzv_id needs none");
  }
  EXPECT_EQ(refused({{"rdzv_backend", "zeus"}}),
            "--rdzv_backend 'zeus' is not a rendezvous backend\ngive static or c10d");
}

TEST_F(SettingsTest, ReadsTheRendezvousConfiguration) {
  Flags c10d{{"nnodes", "2"}, {"rdzv_backend", "c10d"}, {"rdzv_endpoint", "a:1"}};
  auto with = [&](const std::string& conf) {
    Flags flags = c10d;
    flags["rdzv_conf"] = conf;
    return job(flags);
  };
  EXPECT_EQ(with("timeout=60").join_timeout, seconds(60));
  EXPECT_EQ(with("join_timeout=61").join_timeout, seconds(61));
  EXPECT_EQ(with("timeout=60,join_timeout=61").join_timeout, seconds(61));  // what governs c10d
  EXPECT_EQ(job({{"rdzv_conf", "timeout=60,join_timeout=61"}}).join_timeout, seconds(60));
  EXPECT_EQ(with("is_host=true").is_host, true);
  EXPECT_EQ(with("is_host=0").is_host, false);
  EXPECT_EQ(with("").is_host, std::nullopt);
  Settings other = good({{"rdzv_conf", "last_call_timeout=3"}});
  EXPECT_THAT(other.debug, ElementsAre("ignored=--rdzv_conf key=last_call_timeout"));
}

TEST_F(SettingsTest, RefusesBrokenRendezvousConfigurations) {
  const std::string hint = " is not a list of key=value\ngive it as timeout=600,is_host=true";
  EXPECT_EQ(refused({{"rdzv_conf", "timeout"}}), "--rdzv_conf 'timeout'" + hint);
  EXPECT_EQ(refused({{"rdzv_conf", "timeout="}}), "--rdzv_conf 'timeout='" + hint);
  EXPECT_EQ(refused({{"rdzv_conf", "=3"}}), "--rdzv_conf '=3'" + hint);
  EXPECT_EQ(refused({{"rdzv_conf", "is_host=perhaps"}}),
            "--rdzv_conf 'is_host=perhaps' has is_host=perhaps\ngive is_host=true or is_host=false");
  EXPECT_THAT(refused({{"rdzv_conf", "timeout=x"}}),
              HasSubstr("--rdzv_conf timeout= 'x' is not a number of seconds"));
}

TEST_F(SettingsTest, ReadsTimesInWholeSeconds) {
  EXPECT_EQ(job({{"join_timeout", "5"}}).join_timeout, seconds(5));
  EXPECT_EQ(job({{"heartbeat_timeout", "7"}}).heartbeat_timeout, seconds(7));
  EXPECT_EQ(job({{"shutdown_timeout", "0"}}).shutdown_timeout, seconds(0));
  EXPECT_EQ(job({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "9"}}).shutdown_timeout, seconds(9));
  EXPECT_EQ(
      job({}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "9"}, {"PET_SHUTDOWN_TIMEOUT", "8"}}).shutdown_timeout,
      seconds(8));
  EXPECT_THAT(refused({{"join_timeout", "0"}}), HasSubstr("--join_timeout '0' is below 1"));
  EXPECT_THAT(refused({{"heartbeat_timeout", "x"}}),
              HasSubstr("--heartbeat_timeout 'x' is not a number of seconds"));
  EXPECT_THAT(refused({{"shutdown_timeout", "-1"}}), HasSubstr("--shutdown_timeout '-1' is below 0"));
}

TEST_F(SettingsTest, DoesNotTakeThePortOfAnEndpointThatLost) {
  Variables pet{{"PET_RDZV_ENDPOINT", "a:1"}};
  EXPECT_EQ(job({{"nnodes", "2"}, {"master_addr", "b"}}, pet).master_port, 29500);
  EXPECT_EQ(job({{"nnodes", "2"}}, pet).master_port, 1);
  EXPECT_EQ(job({{"nnodes", "2"}, {"master_addr", "b"}}, {{"PET_RDZV_ENDPOINT", "a"}}).master_port, 29500);
  EXPECT_EQ(job({{"nnodes", "2"}, {"master_addr", "b"}}, {{"PET_RDZV_ENDPOINT", "[garbage"}}).master_port,
            29500);
  EXPECT_THAT(refused({}, {{"PET_RDZV_ENDPOINT", "[garbage"}}), HasSubstr("PET_RDZV_ENDPOINT='[garbage'"));
}

TEST_F(SettingsTest, LetsStandaloneOverrideTheNumberOfNodesAndSaysSo) {
  Settings typed = good({{"standalone", "1"}, {"nnodes", "2"}, {"node_rank", "1"}});
  EXPECT_EQ(typed.job.nnodes, 1);
  EXPECT_EQ(typed.job.node_rank, 0);
  EXPECT_THAT(typed.warnings, ElementsAre("--standalone overrides --nnodes '2': one node"));
  EXPECT_THAT(good({{"standalone", "1"}, {"nnodes", "1:1"}}).warnings, IsEmpty());
  Settings exported = good({}, {{"PET_STANDALONE", ""}, {"PET_NNODES", "1:4"}});
  EXPECT_EQ(exported.job.nnodes, 1);
  EXPECT_THAT(exported.warnings, IsEmpty());
  EXPECT_EQ(job({{"nnodes", "2"}}, {{"PET_STANDALONE", "1"}}).nnodes, 2);  // a better tier
  EXPECT_EQ(job({{"nnodes", "2"}}, {{"PET_STANDALONE", "1"}}).master_port, 29500);
}

TEST_F(SettingsTest, LetsStandaloneOverrideTheRendezvousFlags) {
  Job settled = job({{"standalone", "1"},
                     {"rdzv_backend", "etcd"},
                     {"rdzv_endpoint", "h:5"},
                     {"master_port", "6"},
                     {"master_addr", "x"}},
                    {{"PET_NODE_RANK", "2"}});
  EXPECT_EQ(settled.nnodes, 1);
  EXPECT_EQ(settled.node_rank, 0);
  EXPECT_EQ(settled.master_addr, "127.0.0.1");
  EXPECT_FALSE(settled.master_addr_given);
  EXPECT_EQ(settled.master_port, 0);
}

// --- program ---

TEST_F(SettingsTest, RefusesToRunNothing) {
  const std::string hint = "\nusage: dlaunch [flags] program [its arguments]; --help lists the flags";
  EXPECT_EQ(refused({}, {}, {}), "no program to run" + hint);
  EXPECT_EQ(refused({}, {}, {""}), "the program '' has no name" + hint);
}

TEST_F(SettingsTest, LeavesMissingProgramsForTheStartOfTheWorkers) {
  EXPECT_THAT(job({}, {}, {"/no/such/program"}).program.prefix, ElementsAre("/no/such/program"));
  EXPECT_EQ(job({}, {}, {" "}).program.typed, " ");
}

TEST_F(SettingsTest, PassesTheLocalRankInTheSpellingThatTheScriptNames) {
  auto flag = [&](const std::string& text, Flags flags = {}) {
    machine_.add("train.py", text);
    return job(std::move(flags)).program.local_rank_flag;
  };
  EXPECT_EQ(flag("p.add_argument('--local_rank')"), "--local_rank");
  EXPECT_EQ(flag("p.add_argument('--local-rank')"), "--local-rank");
  EXPECT_EQ(flag("p.add_argument('--local-rank', '--local_rank')"), "--local_rank");
  EXPECT_EQ(flag("os.environ['LOCAL_RANK']"), "");
  EXPECT_EQ(flag("p.add_argument('--local_rank')", {{"use_env", "1"}}), "");
  EXPECT_EQ(flag("", {{"pass_local_rank", "underscore"}}), "--local_rank");
  EXPECT_EQ(flag("", {{"pass_local_rank", "dash"}}), "--local-rank");
  EXPECT_EQ(flag("'--local_rank'", {{"pass_local_rank", "none"}}), "");
  EXPECT_EQ(flag("'--local_rank'", {{"use_env", "1"}, {"pass_local_rank", "dash"}}), "--local-rank");
  EXPECT_EQ(refused({{"pass_local_rank", "maybe"}}),
            "--pass_local_rank 'maybe' is no way to pass it\ngive underscore, dash or none");
}

TEST_F(SettingsTest, NeverPassesTheLocalRankAsTorchrun) {
  machine_.add("train.py", "'--local_rank'");
  invoked_as_ = "torchrun";
  EXPECT_EQ(job({}).program.local_rank_flag, "");
  Settings forced = good({{"pass_local_rank", "dash"}});
  EXPECT_EQ(forced.job.program.local_rank_flag, "");
  EXPECT_THAT(forced.warnings,
              ElementsAre("--pass_local_rank 'dash' has no effect: torchrun never passes --local_rank"));
}

TEST_F(SettingsTest, PassesTheLocalRankBehindTheScriptOfANamedInterpreter) {
  machine_.add("train.py", "'--local_rank'");
  Program program = job({}, {}, {"python3", "train.py", "--x"}).program;
  EXPECT_EQ(program.local_rank_flag, "--local_rank");
  EXPECT_THAT(program.prefix, ElementsAre("python3", "train.py"));
  EXPECT_EQ(job({{"no_python", "1"}}, {}, {"python3", "train.py"}).program.local_rank_flag, "");
}

TEST_F(SettingsTest, WarnsOnceWhenAWrapperWillNotBeGivenArguments) {
  Settings settings = good({{"process_num", "2"}}, {}, {"numactl", "-N0", "python3", "train.py"});
  EXPECT_THAT(settings.warnings,
              ElementsAre("'numactl' runs another program: it gets PROCESS_INDEX and PROCESS_NUM "
                          "in its environment only"));
  EXPECT_THAT(good({}, {}, {"numactl", "-N0", "true"}).warnings, IsEmpty());
}

TEST_F(SettingsTest, RefusesAModuleWithoutPython) {
  EXPECT_EQ(refused({{"module", "1"}}, {{"PET_NO_PYTHON", "1"}}),
            "--module and --no_python cannot be used together\nleave out one of the two");
}

// --- the store ---

TEST_F(SettingsTest, ChoosesTheWorkersStoreForScriptsThatMeetElsewhere) {
  auto store = [&](const std::string& text, Flags flags = {}, std::vector<std::string> words = {"train.py"}) {
    machine_.add("train.py", text);
    return job(std::move(flags), {}, std::move(words)).store;
  };
  EXPECT_EQ(store("init_process_group('gloo')"), StoreHost::agent);
  EXPECT_EQ(store("init_method='tcp://127.0.0.1:23456'"), StoreHost::worker);
  EXPECT_EQ(store("init_method='tcp://127.0.0.1:23456'", {{"master_port", "23456"}}), StoreHost::agent);
  EXPECT_EQ(store("os.environ['MASTER_PORT'] = '1'"), StoreHost::worker);
  EXPECT_EQ(store("", {}, {"train.py", "--dist-url", "tcp://10.0.0.1:5"}), StoreHost::worker);
  EXPECT_EQ(store("", {}, {"train.py", "--dist-url=tcp://10.0.0.1:5"}), StoreHost::worker);
  EXPECT_EQ(store("tcp://", {{"store", "agent"}}), StoreHost::agent);
  EXPECT_EQ(store("", {{"store", "worker"}}), StoreHost::worker);
  EXPECT_EQ(refused({{"store", "redis"}}),
            "--store 'redis' cannot host the store\ngive auto, agent or worker");
}

TEST_F(SettingsTest, RefusesAnAccessRuleThatIsNotBuilt) {
  EXPECT_EQ(refused({{"store_access", "joined"}}),
            "--store_access 'joined' is not built yet\nleave the flag out: everybody may connect");
  EXPECT_EQ(refused({{"store_access", "x"}}), "--store_access 'x' is not an access rule\ngive any or joined");
  EXPECT_TRUE(settled({{"store_access", "any"}}));
}

TEST_F(SettingsTest, KeepsTheStorePort) { EXPECT_EQ(job({{"store_port", "7"}}).store_port, 7); }

// --- GPUs and cores ---

TEST_F(SettingsTest, BindsGpusByTheKindOfProgram) {
  EXPECT_EQ(job({}).gpu_bind, GpuBind::node);
  EXPECT_EQ(job({}, {}, {"prog"}).gpu_bind, GpuBind::single);
  EXPECT_EQ(job({{"no_python", "1"}}, {}, {"prog"}).gpu_bind, GpuBind::node);
  EXPECT_EQ(job({{"process_num", "2"}}).gpu_bind, GpuBind::single);
  EXPECT_EQ(job({{"process_num", "2"}, {"process_group", "1"}}).gpu_bind, GpuBind::single);
  machine_.add("/usr/bin/python3", kElf, true);
  machine_.add("/usr/bin/numactl", kElf, true);
  EXPECT_EQ(job({}, {}, {"python3", "train.py"}).gpu_bind, GpuBind::node);
  EXPECT_EQ(job({}, {}, {"numactl", "prog"}).gpu_bind, GpuBind::node);
}

TEST_F(SettingsTest, BindsGpusAsItIsTold) {
  EXPECT_EQ(job({{"gpu_bind", "node"}}, {}, {"prog"}).gpu_bind, GpuBind::node);
  EXPECT_EQ(job({{"gpu_bind", "single"}}).gpu_bind, GpuBind::single);
  EXPECT_EQ(job({{"gpu_bind", "virtual"}}).gpu_bind, GpuBind::virtual_rank);
  EXPECT_EQ(job({{"gpu_bind", "none"}}).gpu_bind, GpuBind::none);
  EXPECT_EQ(job({{"gpu_bind", "auto"}}).gpu_bind, GpuBind::node);
  EXPECT_EQ(job({{"virtual_local_rank", "1"}}).gpu_bind, GpuBind::virtual_rank);
  EXPECT_EQ(job({}, {{"PET_VIRTUAL_LOCAL_RANK", "1"}}).gpu_bind, GpuBind::virtual_rank);
  EXPECT_EQ(refused({{"gpu_bind", "all"}}),
            "--gpu_bind 'all' is no way to share out GPUs\ngive auto, node, single, virtual or none");
}

TEST_F(SettingsTest, TakesTheGpusFromTheListThenTheDeviceFilesThenTheWorkers) {
  machine_.gpus = 2;
  EXPECT_THAT(job({}, {{"CUDA_VISIBLE_DEVICES", "4,GPU-x"}}).gpus, ElementsAre("4", "GPU-x"));
  EXPECT_THAT(job({}, {{"CUDA_VISIBLE_DEVICES", ""}}).gpus, IsEmpty());
  EXPECT_THAT(job({}).gpus, ElementsAre("0", "1"));
  machine_.gpus = 0;
  EXPECT_THAT(job({{"nproc_per_node", "3"}}).gpus, ElementsAre("0", "1", "2"));
}

TEST_F(SettingsTest, WarnsOfMoreWorkersThanGpus) {
  Variables two{{"CUDA_VISIBLE_DEVICES", "4,5"}};
  EXPECT_THAT(good({{"nproc_per_node", "4"}}, two).warnings,
              ElementsAre("4 workers, but 2 GPUs in CUDA_VISIBLE_DEVICES='4,5'"));
  EXPECT_THAT(good({{"nproc_per_node", "2"}}, two).warnings, IsEmpty());
  EXPECT_THAT(good({{"nproc_per_node", "4"}, {"gpu_bind", "single"}}, two).warnings, IsEmpty());
  EXPECT_THAT(good({{"process_num", "4"}}, two).warnings, IsEmpty());
  EXPECT_THAT(good({{"nproc_per_node", "4"}}, {{"CUDA_VISIBLE_DEVICES", ""}}).warnings, IsEmpty());
  machine_.gpus = 1;
  EXPECT_THAT(good({{"nproc_per_node", "2"}}).warnings, ElementsAre("2 workers, but 1 GPU found"));
}

TEST_F(SettingsTest, DividesTheCoresAmongTheWorkers) {
  machine_.cores = 8;
  EXPECT_EQ(job({}).omp_threads, std::nullopt);
  EXPECT_EQ(job({{"nproc_per_node", "3"}}).omp_threads, 2);
  EXPECT_EQ(job({{"nproc_per_node", "9"}}).omp_threads, 1);
  EXPECT_EQ(job({{"nproc_per_node", "3"}}, {{"OMP_NUM_THREADS", "5"}}).omp_threads, std::nullopt);
  EXPECT_EQ(job({{"nproc_per_node", "3"}, {"omp_threads", "7"}}, {{"OMP_NUM_THREADS", "5"}}).omp_threads, 7);
  EXPECT_EQ(job({{"process_num", "4"}, {"process_index", "0"}}).omp_threads, 2);
  EXPECT_THAT(refused({{"omp_threads", "0"}}), HasSubstr("--omp_threads '0' is below 1"));
}

// --- copies ---

TEST_F(SettingsTest, RunsIndependentCopies) {
  Settings settings = good({{"process_num", "3"}});
  ASSERT_TRUE(settings.job.copies);
  EXPECT_EQ(settings.job.copies->count, 3);
  EXPECT_EQ(settings.job.copies->only, std::nullopt);
  EXPECT_TRUE(settings.job.copies->keep_going);
  EXPECT_TRUE(independent_copies(settings.job));
  EXPECT_EQ(settings.job.nproc, 3);
  EXPECT_EQ(origin(settings, "nproc_per_node").source, "derived from --process_num");
  EXPECT_FALSE(job({{"process_num", "3"}, {"stop_all", "1"}}).copies->keep_going);
  EXPECT_TRUE(job({{"process_num", "3"}, {"keep_going", "1"}}).copies->keep_going);
}

TEST_F(SettingsTest, RunsOneCopyOfSeveral) {
  Job settled = job({{"process_num", "3"}, {"process_index", "2"}});
  EXPECT_EQ(settled.copies->only, 2);
  EXPECT_EQ(settled.nproc, 1);
  const std::string hint = "\ncopies are counted from 0, and --process_num '3' says how many";
  for (const char* index : {"3", "-1", "x", ""}) {
    EXPECT_EQ(refused({{"process_num", "3"}, {"process_index", index}}),
              std::string("--process_index '") + index + "' is not one of 0 to 2" + hint);
  }
}

TEST_F(SettingsTest, RunsCopiesAsRanksOfAGroup) {
  Job settled = job({{"process_num", "3"}, {"process_group", "1"}, {"max_restarts", "2"}});
  EXPECT_TRUE(settled.copies->group);
  EXPECT_FALSE(settled.copies->keep_going);
  EXPECT_FALSE(independent_copies(settled));
  EXPECT_EQ(settled.max_restarts, 2);
  EXPECT_EQ(refused({{"process_num", "3"}, {"process_group", "1"}, {"process_index", "1"}}),
            "--process_index and --process_group cannot be used together\none dlaunch starts all ranks of "
            "the group");
  EXPECT_EQ(refused({{"process_num", "3"}, {"process_group", "1"}, {"keep_going", "1"}}),
            "--keep_going and --process_group cannot be used together\na group cannot go on without one of "
            "its ranks");
}

TEST_F(SettingsTest, RefusesFlagsThatContradictCopies) {
  EXPECT_EQ(refused({{"process_num", "2"}, {"nproc_per_node", "2"}}),
            "--nproc_per_node '2' cannot be used with --process_num '2'\n"
            "the number of copies is the number of workers");
  EXPECT_EQ(refused({{"process_num", "2"}, {"nnodes", "2"}}),
            "--nnodes '2' cannot be used with --process_num '2'\ncopies share the GPUs of one node");
  EXPECT_EQ(
      refused({{"process_num", "2"}, {"max_restarts", "1"}}),
      "--max_restarts '1' cannot be used with --process_num '2'\nonly --process_group copies are restarted");
  EXPECT_EQ(job({{"process_num", "2"}, {"nnodes", "1"}, {"max_restarts", "0"}}).nproc, 2);
  for (const char* flag : {"nproc_per_node", "nnodes"}) {
    EXPECT_THAT(refused({{"process_num", "2"}, {"process_group", "1"}, {flag, "2"}}),
                HasSubstr("cannot be used with"));
  }
  EXPECT_THAT(refused({{"process_num", "0"}}), HasSubstr("--process_num '0' is below 1"));
  EXPECT_THAT(refused({{"process_num", "x"}}), HasSubstr("--process_num 'x' is not a number of copies"));
}

TEST_F(SettingsTest, IgnoresCountsOfVariablesForCopies) {
  Job settled = job(
      {{"process_num", "2"}},
      {{"PET_NPROC_PER_NODE", "8"}, {"PET_NNODES", "4"}, {"PET_NODE_RANK", "3"}, {"PET_MAX_RESTARTS", "5"}});
  EXPECT_EQ(settled.nproc, 2);
  EXPECT_EQ(settled.nnodes, 1);
  EXPECT_EQ(settled.node_rank, 0);
  EXPECT_EQ(settled.max_restarts, 0);
}

TEST_F(SettingsTest, RefusesFlagsOfCopiesWithoutCopies) {
  EXPECT_EQ(refused({{"keep_going", "1"}}),
            "--keep_going needs --process_num\nit says how copies run: --process_num 2 --keep_going");
  EXPECT_EQ(refused({{"process_group", "1"}}),
            "--process_group needs --process_num\nit says how copies run: --process_num 2 --process_group");
  EXPECT_EQ(refused({{"process_index", "1"}}),
            "--process_index '1' needs --process_num\ngive the number of copies too");
}

TEST_F(SettingsTest, RefusesToStopAllAndToKeepGoing) {
  EXPECT_EQ(refused({{"process_num", "2"}, {"keep_going", "1"}}, {{"DLAUNCH_STOP_ALL", "1"}}),
            "--keep_going and --stop_all cannot be used together\nleave out one of the two");
}

// --- life and output ---

TEST_F(SettingsTest, ReadsRestartsAndSignals) {
  EXPECT_EQ(job({{"max_restarts", "3"}}).max_restarts, 3);
  EXPECT_THAT(refused({{"max_restarts", "-1"}}), HasSubstr("--max_restarts '-1' is below 0"));
  EXPECT_EQ(job({{"signals_to_handle", "SIGTERM, usr1"}}).stop_signals, (std::set<int>{SIGTERM, SIGUSR1}));
  EXPECT_EQ(refused({{"signals_to_handle", "SIGTERM,SIGFOO"}}),
            "--signals_to_handle 'SIGTERM,SIGFOO' names no signal with 'SIGFOO'\ngive it as SIGTERM,SIGINT");
  EXPECT_EQ(refused({{"signals_to_handle", "KILL"}}),
            "--signals_to_handle 'KILL' names SIGKILL, which no program can handle\nleave it out");
}

TEST_F(SettingsTest, ReadsStreamsForLocalRanksOfAnySize) {
  Job settled = job({{"redirects", "3"}, {"tee", "0:1,12:2"}});
  EXPECT_EQ(settled.redirects.of(7), StreamSpec::both);
  EXPECT_EQ(settled.tee.of(0), StreamSpec::out);
  EXPECT_EQ(settled.tee.of(12), StreamSpec::err);
  EXPECT_EQ(settled.tee.of(1), StreamSpec::none);
  EXPECT_FALSE(job({{"redirects", "0"}}).redirects.any());
  for (const char* text : {"4", "", "0:4", "0:1,", "0: 1", "a:1", "1,2", "33"}) {
    EXPECT_EQ(refused({{"redirects", text}}),
              std::string("--redirects '") + text +
                  "' does not say which streams\n"
                  "give 0, 1 (out), 2 (err) or 3 (both), or one of these for each local rank: 0:3,1:2");
  }
}

TEST_F(SettingsTest, ReadsTheFilterOfLocalRanks) {
  EXPECT_THAT(job({{"local_ranks_filter", "0,12"}}).local_ranks_filter, ElementsAre(0, 12));
  EXPECT_THAT(job({{"local_ranks_filter", ""}}).local_ranks_filter, IsEmpty());
  EXPECT_EQ(refused({{"local_ranks_filter", "0,x"}}),
            "--local_ranks_filter '0,x' is not a list of local ranks\ngive it as 0,1,2");
}

TEST_F(SettingsTest, ReadsFoldersAndFilesOfLogs) {
  EXPECT_EQ(job({{"log_dir", "logs"}}).log_dir, "logs");
  EXPECT_EQ(job({{"logdir", "logs"}}).log_dir, "logs");
  EXPECT_THAT(good({{"logdir", "logs"}}).warnings,
              ElementsAre("--logdir only names the folder: --redirects 3 or --tee 3 fill it"));
  EXPECT_THAT(good({{"logdir", "logs"}, {"tee", "3"}}).warnings, IsEmpty());
  EXPECT_EQ(job({{"log_file", "one.log"}}).log_file, "one.log");
  EXPECT_EQ(job({{"log_file", "p%i.log"}, {"process_num", "3"}}).log_file, "p%i.log");
  EXPECT_EQ(job({{"log_file", "p.log"}, {"process_num", "3"}, {"process_index", "1"}}).log_file, "p.log");
  EXPECT_EQ(job({{"log_file", "p%r.log"}, {"nproc_per_node", "3"}}).log_file, "p%r.log");
}

TEST_F(SettingsTest, RefusesOneLogFileForSeveralWorkers) {
  EXPECT_EQ(refused({{"log_file", "p.log"}, {"nproc_per_node", "2"}}),
            "--log_file 'p.log' is one file for 2 workers\nput %i (local index) or %r (rank) into its name");
  EXPECT_THAT(refused({{"log_file", "p.log"}, {"process_num", "2"}}), HasSubstr("is one file for 2 workers"));
  EXPECT_THAT(refused({{"log_file", ""}}), HasSubstr("--log_file '' is empty"));
}

TEST_F(SettingsTest, TakesTheLogLevelFromItsFlagThenFromLoglevel) {
  EXPECT_EQ(good({{"log_level", "DEBUG"}}, {{"LOGLEVEL", "error"}}).log_level, "debug");
  EXPECT_EQ(good({}, {{"LOGLEVEL", "INFO"}}).log_level, "info");
  EXPECT_EQ(good({}, {{"LOGLEVEL", "40"}}).log_level, "error");
  EXPECT_EQ(good({}, {{"LOGLEVEL", "verbose"}}).log_level, "warning");
  EXPECT_EQ(refused({{"log_level", "loud"}}),
            "--log_level 'loud' is not a level\ngive debug, info, warning or error");
}

// --- flags without effect, and questions ---

TEST_F(SettingsTest, WarnsOfTorchsFlagsThatAreNotBuilt) {
  EXPECT_THAT(
      good({{"numa_binding", "node"}, {"duplicate_stdout_filters", "a"}},
           {{"PET_LOG_LINE_PREFIX_TEMPLATE", "x"}})
          .warnings,
      testing::UnorderedElementsAre("--numa_binding is not built yet and has no effect",
                                    "--duplicate_stdout_filters is not built yet and has no effect",
                                    "PET_LOG_LINE_PREFIX_TEMPLATE is not built yet and has no effect"));
}

TEST_F(SettingsTest, AcceptsFlagsThatMeanNothingHereWithADebugLine) {
  Settings settings = good({{"start_method", "spawn"},
                            {"event_log_handler", "null"},
                            {"logs_specs", "x"},
                            {"monitor_interval", "0.1"},
                            {"local_addr", "h"}});
  EXPECT_THAT(settings.warnings, IsEmpty());
  EXPECT_EQ(settings.debug.size(), 5u);
  EXPECT_THAT(settings.debug, Contains("ignored=--start_method value=spawn"));
}

TEST_F(SettingsTest, KnowsWhatIsAsked) {
  EXPECT_EQ(good({{"explain", "1"}}).ask, Settings::Ask::explain);
  EXPECT_FALSE(good({{"explain", "1"}}).explain_json);
  EXPECT_TRUE(good({{"explain", "json"}}).explain_json);
  EXPECT_EQ(good({{"dry_run", "1"}}).ask, Settings::Ask::explain);
  EXPECT_EQ(good({}, {{"DLAUNCH_EXPLAIN", "0"}}).ask, Settings::Ask::run);
  EXPECT_EQ(refused({{"explain", "xml"}}),
            "--explain 'xml' is not a format\ngive --explain or --explain=json");
  EXPECT_EQ(good({{"help", "1"}, {"nnodes", "x"}}, {}, {}).ask, Settings::Ask::help);
  EXPECT_EQ(good({{"version", "1"}}, {}, {}).ask, Settings::Ask::version);
}

}  // namespace
}  // namespace dlaunch
