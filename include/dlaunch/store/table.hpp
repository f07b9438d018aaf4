// The store itself: keys, queues and who waits for what. It knows no sockets, clocks or dialects:
// requests of numbered sessions in, replies to numbered sessions out.
//
// In the corner cases it answers as PyTorch's libuv server, to old clients too: GET of a missing key is
// an empty value; COMPARE_SET wakes. It differs on purpose in four points:
//   - any request but CANCEL_WAIT drops a pending WAIT of its session in silence. Clients up to PyTorch
//     2.0 time out without a word, and a late answer would shift their stream for good;
//   - COMPARE_SET wakes only if the key exists afterwards;
//   - a queue that holds something is present for WAIT, and QUEUE_PUSH wakes one waiter and takes it off;
//   - all keys and values together are bounded.
//
// A WAIT counts events, not state: each key missing at its time is counted off by the first change of
// that key, even if the key is deleted again before the others come.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dlaunch/store/bytes.hpp"
#include "dlaunch/store/protocol.hpp"

namespace dlaunch::store {

using SessionId = std::uint32_t;  // small numbers, used again after close()

struct TableLimits {
  std::size_t total_bytes = std::size_t{4} << 30;  // keys, values, queues, waits; and kEntryOverhead for each
  bool drop_stale_waits = true;  // false: as PyTorch's servers do it, for the test that shows why not
};

inline constexpr std::size_t kEntryOverhead = 128;

// Some bytes for one session: a head made here, then a shared value.
struct Reply {
  SessionId to = 0;
  std::uint8_t head_size = 0;
  std::array<char, 11> head{};
  Bytes body = {};

  std::string_view head_view() const { return {head.data(), head_size}; }
};

class Table {
 public:
  explicit Table(TableLimits limits = {}) : limits_(limits) {}

  void open(SessionId session);
  void close(SessionId session);  // its waits and watches are forgotten

  // Applies one request and appends what is to be sent, in order. The answer is empty, or why this
  // session must be closed; then the request has changed nothing.
  [[nodiscard]] std::string_view apply(SessionId from, const Request& request, std::vector<Reply>& replies);

  // A new round: no keys, no queues, nobody waits, no session is open.
  void clear();

  std::size_t keys() const { return values_.size(); }
  std::size_t total_bytes() const { return total_bytes_; }
  std::size_t waits() const;  // (session, key) pairs

 private:
  struct WaitList;

  // One session waits for one key: a link of that key's list, in order of arrival.
  struct Wait {
    SessionId session = 0;
    WaitList* list = nullptr;  // null once counted off
    Wait* before = nullptr;
    Wait* after = nullptr;
  };
  struct WaitList {
    std::string_view key;  // of the map's node
    Wait* first = nullptr;
    Wait* last = nullptr;
  };
  struct Session {
    std::size_t awaited = 0;   // keys still missing; above 0: a WAIT is pending
    std::vector<Wait> waits;   // never grows while linked
    std::vector<std::string> watched;
  };
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  template <class T>
  using Map = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

  using Replies = std::vector<Reply>;

  bool present(std::string_view key) const;
  bool all_present(const Request& request) const;
  bool fits(std::size_t more) const { return more <= limits_.total_bytes - total_bytes_; }
  void put(std::string_view key, std::string_view value, Replies& replies);
  void await(SessionId from, std::string_view key);
  void forget(Session& session);
  void unlink(Wait& wait);
  void count_off(Wait& wait, Replies& replies);
  void wake(std::string_view key, Replies& replies);
  void tell(std::string_view key, WatchAnswer what, std::string_view before, std::string_view after,
            Replies& replies);
  Bytes value_of(std::string_view key) const;

  std::string_view compare_set(SessionId from, const Request& request, Replies& replies);
  std::string_view add(SessionId from, const Request& request, Replies& replies);
  std::string_view wait(SessionId from, const Request& request, Replies& replies);
  std::string_view append(const Request& request, Replies& replies);
  std::string_view multi_set(const Request& request, Replies& replies);
  void delete_key(SessionId from, const Request& request, Replies& replies);
  std::string_view queue_push(const Request& request, Replies& replies);
  void queue_pop(SessionId from, const Request& request, Replies& replies);
  void list_keys(SessionId from, Replies& replies) const;
  std::string_view barrier(SessionId from, const Request& request, Replies& replies);

  TableLimits limits_;
  std::size_t total_bytes_ = 0;
  std::vector<Session> sessions_;  // index is the SessionId
  Map<Bytes> values_;
  Map<std::deque<Bytes>> queues_;  // none of them empty
  Map<WaitList> waiting_;          // none of them empty
  Map<std::vector<SessionId>> watchers_;
};

}  // namespace dlaunch::store
