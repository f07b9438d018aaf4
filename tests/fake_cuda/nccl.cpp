// libnccl for machines without a GPU; see README.md. Ranks are processes of this machine.
#include <arpa/inet.h>
#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <nccl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace {

enum class Operation : std::uint32_t { allreduce, broadcast, allgather };
const char* const kNames[] = {"allreduce", "broadcast", "allgather"};

struct Hello {
  std::int32_t rank, ranks;
  char device[16];
};

struct Request {
  Operation operation;
  std::uint32_t type;
  std::uint64_t bytes;
  std::int32_t root;
};

struct Verdict {  // of the hub, when all have come
  std::int32_t result;
  char text[124];
};

char last_error[128] = "";
void set_error(const std::string& text) { std::snprintf(last_error, sizeof last_error, "%s", text.c_str()); }

void send_at_once(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto sent = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= std::size_t(sent);
  }
  return true;
}
bool receive_all(int fd, void* data, std::size_t bytes) {
  return bytes == 0 || ::recv(fd, data, bytes, MSG_WAITALL) == ssize_t(bytes);
}

template <class T>
void add(std::vector<char>& sum, const std::vector<char>& more) {
  for (std::size_t i = 0; i < sum.size() / sizeof(T); ++i) {
    reinterpret_cast<T*>(sum.data())[i] += reinterpret_cast<const T*>(more.data())[i];
  }
}

std::vector<char> answer_to(const Request& request, const std::vector<std::vector<char>>& inputs) {
  if (request.operation == Operation::broadcast) return inputs[std::size_t(request.root)];
  std::vector<char> all = inputs[0];
  for (std::size_t rank = 1; rank < inputs.size(); ++rank) {
    if (request.operation == Operation::allgather) {
      all.insert(all.end(), inputs[rank].begin(), inputs[rank].end());
    } else if (request.type == ncclFloat32) {
      add<float>(all, inputs[rank]);
    } else if (request.type == ncclFloat64) {
      add<double>(all, inputs[rank]);
    } else {
      add<std::int64_t>(all, inputs[rank]);
    }
  }
  return all;
}

bool serve_one(const std::vector<int>& peers) {
  std::vector<std::vector<char>> inputs(peers.size());
  Request first{};
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    Request request{};
    if (!receive_all(peers[rank], &request, sizeof request)) return false;
    if (rank == 0) first = request;
    if (request.operation != first.operation || request.bytes != first.bytes) return false;
    inputs[rank].resize(request.bytes);
    if (!receive_all(peers[rank], inputs[rank].data(), request.bytes)) return false;
  }
  const auto answer = answer_to(first, inputs);
  for (int peer : peers) {
    if (!send_all(peer, answer.data(), answer.size())) return false;
  }
  return true;
}

// At rank 0. Ends, and every connection with it, when a peer goes.
void serve(int listener) {
  std::vector<int> peers;
  std::vector<Hello> hellos;
  Verdict verdict{ncclSuccess, ""};
  for (std::size_t come = 0; come == 0 || come < peers.size(); ++come) {
    const int fd = ::accept(listener, nullptr, nullptr);
    Hello hello{};
    if (fd < 0 || !receive_all(fd, &hello, sizeof hello)) {
      verdict = {ncclRemoteError, "a rank went before the start"};
      break;
    }
    send_at_once(fd);
    peers.resize(std::size_t(hello.ranks), -1);
    peers[std::size_t(hello.rank)] = fd;
    for (const Hello& other : hellos) {
      if (std::memcmp(other.device, hello.device, sizeof hello.device) != 0) continue;
      verdict.result = ncclInvalidUsage;
      std::snprintf(verdict.text, sizeof verdict.text, "Duplicate GPU detected : rank %d and rank %d",
                    other.rank, hello.rank);
    }
    hellos.push_back(hello);
  }
  ::close(listener);
  for (int peer : peers) send_all(peer, &verdict, sizeof verdict);
  while (verdict.result == ncclSuccess && serve_one(peers)) {
  }
  for (int peer : peers) {
    ::shutdown(peer, SHUT_RDWR);
    ::close(peer);
  }
}

int number_of(cudaStream_t stream) {
  static std::vector<cudaStream_t> seen;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == stream) return int(i);
  }
  seen.push_back(stream);
  return int(seen.size()) - 1;
}

}  // namespace

struct ncclComm {
  int fd = -1;
  int rank = 0;
  int ranks = 0;
  std::atomic<int> state{ncclInProgress};
  std::thread starter;
  std::function<void()> held_back;  // until the second question for the state
  bool asked = false;
  int collectives = 0;
  std::mutex mutex;
  std::condition_variable changed;
  int outstanding = 0;
  bool aborted = false;

  void wait() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return outstanding == 0; });
  }
  void fail(ncclResult_t result, const std::string& text) {
    set_error(text);
    state = result;
    ::shutdown(fd, SHUT_RDWR);
  }
  // A kernel of NCCL's that failed does not end by itself.
  void wait_for_abort() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return aborted; });
  }
};

namespace {

struct Task {
  ncclComm* comm;
  Request request;
  const void* from;
  void* to;
  bool injected;
};

void perform(void* argument) {
  const Task task = *static_cast<Task*>(argument);
  delete static_cast<Task*>(argument);
  ncclComm& comm = *task.comm;
  const std::size_t answer =
      task.request.bytes * (task.request.operation == Operation::allgather ? std::size_t(comm.ranks) : 1);
  if (task.injected) {
    comm.fail(ncclSystemError, "injected");
    comm.wait_for_abort();
  } else if (!send_all(comm.fd, &task.request, sizeof task.request) ||
             !send_all(comm.fd, task.from, task.request.bytes) || !receive_all(comm.fd, task.to, answer)) {
    comm.fail(ncclRemoteError, "connection closed by remote peer");
    comm.wait_for_abort();
  }
  const std::lock_guard lock(comm.mutex);
  --comm.outstanding;
  comm.changed.notify_all();
}

ncclResult_t collective(ncclComm* comm, Operation operation, const void* from, void* to, std::size_t count,
                        ncclDataType_t type, int root, cudaStream_t stream) {
  if (comm->state != ncclSuccess || comm->held_back) return ncclInvalidUsage;
  const std::size_t size = type == ncclUint8 ? 1 : type == ncclFloat32 ? 4 : 8;
  const char* fail = std::getenv("FAKE_NCCL_FAIL");
  const bool injected = ++comm->collectives == (fail ? std::atoi(fail) : 0);
  if (const char* path = std::getenv("FAKE_NCCL_LOG")) {
    const std::string line = std::to_string(comm->rank) + " " + kNames[int(operation)] + " " +
                             std::to_string(count) + " " + std::to_string(number_of(stream)) + "\n";
    const int log = ::open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (::write(log, line.data(), line.size()) < 0) std::perror(path);
    ::close(log);
  }
  auto* task = new Task{comm, {operation, std::uint32_t(type), count * size, root}, from, to, injected};
  comm->asked = false;
  comm->held_back = [comm, task, stream] {
    {
      const std::lock_guard lock(comm->mutex);
      ++comm->outstanding;
    }
    cudaLaunchHostFunc(stream, perform, task);
  };
  return ncclInProgress;
}

void start(ncclComm* comm, sockaddr_in hub, Hello hello) {
  Verdict verdict{};
  if (::connect(comm->fd, reinterpret_cast<sockaddr*>(&hub), sizeof hub) ||
      !send_all(comm->fd, &hello, sizeof hello) || !receive_all(comm->fd, &verdict, sizeof verdict)) {
    comm->fail(ncclRemoteError, "no connection to the hub");
  } else if (verdict.result != ncclSuccess) {
    comm->fail(ncclResult_t(verdict.result), verdict.text);
  } else {
    comm->state = ncclSuccess;
  }
}

void end(ncclComm* comm) {
  comm->wait();
  if (comm->starter.joinable()) comm->starter.join();
  ::close(comm->fd);
  delete comm;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  *version = NCCL_VERSION_CODE;
  return ncclSuccess;
}
const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclSuccess:
      return "no error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclInvalidUsage:
      return "invalid usage";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "internal error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return last_error; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) || ::listen(listener, 64) ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length)) {
    return ncclSystemError;
  }
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &address, sizeof address);
  std::thread(serve, listener).detach();  // it lives as long as its peers, in a test's process
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->blocking != 0 || rank < 0 || rank >= ranks) return ncclInvalidArgument;
  Hello hello{rank, ranks, ""};
  cudaDeviceProp properties{};
  int device = 0;
  if (cudaGetDevice(&device) || cudaGetDeviceProperties(&properties, device)) return ncclUnhandledCudaError;
  std::memcpy(hello.device, properties.uuid.bytes, sizeof hello.device);
  sockaddr_in hub{};
  std::memcpy(&hub, id.internal, sizeof hub);
  auto* made = new ncclComm;
  made->fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  send_at_once(made->fd);
  made->rank = rank;
  made->ranks = ranks;
  made->starter = std::thread(start, made, hub, hello);
  *comm = made;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* result) {
  if (comm->held_back) {
    *result = ncclInProgress;
    if (!std::exchange(comm->asked, true)) return ncclSuccess;
    std::exchange(comm->held_back, nullptr)();
  }
  *result = ncclResult_t(comm->state.load());
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, Operation::allreduce, from, to, count, type, 0, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, Operation::broadcast, from, to, count, type, root, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return collective(comm, Operation::allgather, from, to, count, type, 0, stream);
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  comm->asked = false;
  comm->held_back = [] {};
  return ncclInProgress;
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  end(comm);
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  {
    const std::lock_guard lock(comm->mutex);
    comm->aborted = true;
    comm->changed.notify_all();
  }
  ::shutdown(comm->fd, SHUT_RDWR);
  end(comm);
  return ncclSuccess;
}

}  // extern "C"
