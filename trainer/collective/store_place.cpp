#include <chrono>
#include <thread>

#include "dlaunch/store/client.hpp"
#include "trainer/collective/meeting_place.hpp"
#include "trainer/collective/store_server_thread.hpp"

namespace trainer {
namespace {

using Clock = std::chrono::steady_clock;
using dlaunch::store::StoreClient;

constexpr Milliseconds kGoodbye{3000};  // that rank 0 waits for the others to leave
constexpr Milliseconds kPoll{20};

class StoreMeetingPlace : public MeetingPlace {
 public:
  StoreMeetingPlace(StorePlace place, std::unique_ptr<StoreServerThread> server, StoreClient client)
      : place_(std::move(place)), server_(std::move(server)), client_(std::move(client)) {}

  ~StoreMeetingPlace() override {
    // Nothing depends on the answers.
    (void)client_.set(left(place_.rank), "1");
    if (!server_) return;
    const auto deadline = Clock::now() + kGoodbye;
    for (int rank = 1; rank < place_.world_size; ++rank) {
      for (;;) {
        auto gone = client_.check({left(rank)});
        if (!gone || *gone || Clock::now() >= deadline) break;
        std::this_thread::sleep_for(kPoll);
      }
    }
  }

  Result<> set(const std::string& key, const std::string& value) override {
    return client_.set(place_.prefix + key, value);
  }
  Result<std::string> get(const std::string& key, Milliseconds limit) override {
    return client_.get(place_.prefix + key, limit);
  }
  Result<bool> has(const std::string& key) override { return client_.check({place_.prefix + key}); }
  std::optional<int> served_by() const override { return place_.served_by; }
  Result<std::string> settle(const std::string& key, const std::string& value) override {
    return client_.compare_set(place_.prefix + key, "", value);
  }

 private:
  std::string left(int rank) const { return place_.prefix + "left/" + std::to_string(rank); }

  StorePlace place_;
  std::unique_ptr<StoreServerThread> server_;
  StoreClient client_;
};

}  // namespace

Result<std::unique_ptr<MeetingPlace>> meet_at_store(const StorePlace& place, Milliseconds limit) {
  std::unique_ptr<StoreServerThread> server;
  if (place.served_by == place.rank) {
    auto listening = StoreServerThread::listen(place.host, place.port);
    if (!listening) return std::move(listening).error();
    server = std::move(*listening);
  }
  auto client = StoreClient::connect(place.host, place.port, limit);
  if (!client) {
    auto error = std::move(client).error();
    if (error.hint.empty())
      error.hint = "does rank 0 run, and does it serve a store of PyTorch 2.2 or later, or dlaunch's?";
    return error;
  }
  return std::unique_ptr<MeetingPlace>(
      std::make_unique<StoreMeetingPlace>(place, std::move(server), std::move(*client)));
}

}  // namespace trainer
