#include "trainer/collective/store_server_thread.hpp"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <thread>

#include "dlaunch/store/server.hpp"

namespace trainer {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
constexpr std::chrono::milliseconds kRest{100};

using Acceptor = asio::basic_socket_acceptor<tcp, asio::io_context::executor_type>;

boost::system::error_code open(Acceptor& acceptor, const tcp::endpoint& endpoint) {
  boost::system::error_code error;
  acceptor.close(error);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

}  // namespace

struct StoreServerThread::Inside {
  asio::io_context io{1};
  dlaunch::store::StoreServer server{io};
  Acceptor acceptor{io};
  asio::steady_timer timer{io};
  std::thread thread;

  void accept() {
    acceptor.async_accept([this](boost::system::error_code error, dlaunch::store::Socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return rest();
      boost::system::error_code ignored;
      socket.set_option(tcp::no_delay(true), ignored);
      socket.non_blocking(true, ignored);
      server.adopt(std::move(socket), "");
      accept();
    });
  }

  // Without descriptors it would fail at once again, and again.
  void rest() {
    timer.expires_after(kRest);
    timer.async_wait([this](boost::system::error_code error) {
      if (!error) accept();
    });
  }
};

dlaunch::Result<std::unique_ptr<StoreServerThread>> StoreServerThread::listen(const std::string& host,
                                                                              std::uint16_t port) {
  auto inside = std::make_unique<Inside>();
  boost::system::error_code error;
  auto address = asio::ip::make_address(host, error);
  if (!error) error = open(inside->acceptor, {address, port});
  if (error == asio::error::make_error_code(asio::error::basic_errors(EADDRNOTAVAIL))) {
    error = open(inside->acceptor, {address.is_v6() ? tcp::v6() : tcp::v4(), port});
  }
  if (error) {
    return dlaunch::Error{
        dlaunch::Errc::failed,
        "rank 0 cannot serve the store at port " + std::to_string(port) + ": " + error.message(),
        "is another job, or an earlier run, using the port? choose another"};
  }
  inside->accept();
  inside->thread = std::thread([running = inside.get()] { running->io.run(); });
  return std::unique_ptr<StoreServerThread>(new StoreServerThread(std::move(inside)));
}

StoreServerThread::StoreServerThread(std::unique_ptr<Inside> inside) : inside_(std::move(inside)) {}

StoreServerThread::~StoreServerThread() {
  inside_->io.stop();
  inside_->thread.join();
}

}  // namespace trainer
