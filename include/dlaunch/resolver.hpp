// Names to addresses without the C library's resolver. A static binary that calls getaddrinfo loads
// the image's own name-service modules and may abort there, so names are looked up by c-ares (the
// hosts file, then DNS), and what it does not find is asked of `getent ahosts NAME`, which speaks
// for LDAP, mDNS and all else that the image is set up for. Every attempt reads the files anew.
// Addresses are never looked up backwards. Callers repeat an attempt for as long as they like.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "dlaunch/result.hpp"

namespace dlaunch {

// Literals, IPv4 before IPv6, each once, in the order in which they were found; never empty.
using Addresses = std::vector<std::string>;

// For tests; the defaults are what a program wants.
struct ResolveOptions {
  bool hosts_from_variable = false;  // $CARES_HOSTS names the hosts file
  std::string name_servers;          // "127.0.0.1:5353,…" instead of resolv.conf's
};

// "10.0.0.1", "fe80::1%eth0" and "[::1]" are addresses already: gives the literal without brackets,
// or an empty string for a name.
std::string address_literal(const std::string& text);

// Blocks until an answer or `deadline`; at most 100 ms longer if `abort` becomes true. Errors are
// not_found (nobody knows the name), unreachable (no name server) and timed_out; the text names
// the name.
Result<Addresses> resolve(const std::string& name, std::chrono::steady_clock::time_point deadline,
                          const ResolveOptions& options = {}, const std::atomic<bool>* abort = nullptr);

// The same for a thread that must not block: one question at a time is answered by a thread of its
// own (started with the first name that is no literal), and the answer is posted to `home`. All calls
// must come from the one thread that runs `home`, the destructor too; that one joins the thread,
// within about 100 ms.
class Resolver {
 public:
  using Handler = std::function<void(Result<Addresses>)>;

  explicit Resolver(boost::asio::any_io_executor home, ResolveOptions options = {});
  ~Resolver();
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // Takes the place of a question that is still open, whose handler is then never called.
  void ask(std::string name, std::chrono::milliseconds limit, Handler handler);
  // After this the handler is not called, even if its answer is already on the way.
  void cancel();

 private:
  struct Question;

  Result<void> start_thread();

  boost::asio::any_io_executor home_;
  ResolveOptions options_;
  // Shared because an answer may lie in home's queue when the question, or all of this, is gone.
  std::shared_ptr<Question> open_;
  boost::asio::io_context io_{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::thread thread_;
};

// Every address of this machine, loopback included, IPv4 first; empty if the kernel does not say.
Addresses local_addresses();

// As the kernel has it; never looked up.
std::string host_name();

}  // namespace dlaunch
