// The wire format of PyTorch's TCPStore in all its dialects, decoded without I/O and without a clock.
//
// Integers are little endian and unaligned. There is no framing: a request is a code byte and the
// fields that its code asks for, and one connection carries one synchronous client.
//
//   str, vec := u64 length, then that many bytes       strs := u64 count, then that many str
//
//   request       1a  1b  2   fields after the code             answer
//   VALIDATE       -   -  0   u32 magic                         none; opens a connection, once
//   SET            0   0  1   str key, vec value                none
//   COMPARE_SET    1   1  2   str key, vec expected, desired    vec
//   GET            2   2  3   str key                           vec
//   ADD            3   3  4   str key, i64 delta                i64 sum
//   CHECK          4   4  5   strs                              u8 0 ready, 1 not ready
//   WAIT           5   5  6   strs                              u8 0, now or later
//   GETNUMKEYS     6   6  7                                     i64
//   WATCH_KEY      7   -  -   str key                           u8 3; later one message per change
//   DELETE_KEY     8   7  8   str key                           i64 1 or 0
//   APPEND         -   8  9   str key, vec tail                 none
//   MULTI_GET      -   9  10  strs                              one vec per key
//   MULTI_SET      -  10  11  u64 count, (str key, vec value)…  none
//   CANCEL_WAIT    -  11  12                                    u8 1
//   PING           -   -  13  u32 nonce                         u32 nonce
//   QUEUE_PUSH     -   -  14  str name, vec value               none
//   QUEUE_POP      -   -  15  str name                          i64 length before; if above 0, vec
//   QUEUE_LEN      -   -  16  str name                          i64
//   LIST_KEYS      -   -  17                                    i64 count, then as many str
//   BARRIER        -   -  18  str key, i64 world size           u8 as WAIT
//
// 1a is PyTorch 1.9 to 2.0, 1b is 2.1, 2 is 2.2 and later; 1m (the magic before every request, codes of
// 1b) was never released. Nothing names the dialect, so it is told per connection from its bytes:
//
//   00 and the magic       2, and the VALIDATE is done; 00 and anything else is a SET of 1a or 1b
//   the magic alone        1m
//   codes 0 to 6           the same in 1a and 1b
//   7 as the first request WATCH_KEY of 1a, which has a connection of its own; later, DELETE_KEY of 1b
//   8                      starts alike in both. If more bytes follow it is APPEND of 1b; if none does
//                          for 50 ms (the caller's clock), it was DELETE_KEY of 1a
//   9, 10, 11              1b
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace dlaunch::store {

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;

// How long a DELETE_KEY of dialect 1a may have to stand alone before it is one.
inline constexpr int kSilenceMilliseconds = 50;

enum class Dialect : std::uint8_t { unknown, one /* 1a or 1b */, one_a, one_b, one_m, two };

enum class Op : std::uint8_t {
  set, compare_set, get, add, check, wait, num_keys, watch_key, delete_key, append, multi_get, multi_set,
  cancel_wait, ping, queue_push, queue_pop, queue_len, list_keys, barrier,
};

enum class WaitAnswer : std::uint8_t { stop_waiting = 0, wait_canceled = 1 };
enum class WatchAnswer : std::uint8_t { updated = 0, created = 1, deleted = 2, registered = 3 };

// Compared with every length and count before anything is allocated for it.
struct ProtocolLimits {
  std::uint64_t key_bytes = 8 << 10;
  std::uint64_t keys = 128 << 10;             // in one request
  std::uint64_t value_bytes = 8 << 20;        // dialect 2
  std::uint64_t old_value_bytes = 64 << 20;   // dialect 1, whose servers knew no limit
  std::uint64_t request_bytes = 512 << 20;    // all fields of one request together
};

// One request. What its op does not use is empty; the views live until the decoder is touched again.
struct Request {
  Op op = Op::set;
  std::string_view key;
  std::string_view value;                 // also: expected, tail
  std::string_view desired;               // COMPARE_SET
  std::int64_t number = 0;                // delta, world size, nonce
  std::span<const std::string_view> many; // keys of CHECK, WAIT, MULTI_GET; key, value, key, … of MULTI_SET
};

// The bytes of one connection in, its requests out. Use: feed(), then next() until it says more or broken.
class Decoder {
 public:
  enum class Step { request, more, broken };

  explicit Decoder(const ProtocolLimits& limits = {}, Dialect dialect = Dialect::unknown)
      : limits_(limits), forced_(dialect) {}
  Decoder(const Decoder&) = delete;  // input_ may point into pending_
  Decoder& operator=(const Decoder&) = delete;

  // `bytes` must stay until next() said more or broken, or hold() was called. Bytes of an unfinished
  // request are kept here and are not looked at again.
  void feed(std::string_view bytes);

  // Broken is for ever: no further byte can help, error() says why.
  Step next(Request& request);

  // Keeps what has not been decoded yet, for a caller that stops asking for a while.
  void hold();

  // True after `more`: the bytes so far are a whole DELETE_KEY of 1a or the start of an APPEND of 1b.
  // If nothing is fed for kSilenceMilliseconds, call silence(), then next().
  bool ambiguous() const { return ambiguous_; }
  void silence();

  Dialect dialect() const { return dialect_; }
  std::string_view error() const { return error_; }
  bool started() const { return pending_.size() > begin_; }  // part of a request is held

 private:
  struct Field {
    std::uint32_t at;  // from the start of the request
    std::uint32_t size;
  };
  enum class Take { done, more, broken };

  std::string_view rest() const { return {input_.data() + begin_, input_.size() - begin_}; }
  Step stop(Take take);
  Take open();
  Take start();
  Take read_fields();
  Take take_integer(std::size_t width, std::uint64_t& out);
  Take take_string(std::uint64_t limit, const char* what);
  Take take_count(std::uint64_t& out);
  Take take_many(bool with_values);
  Take refuse(std::string why);
  void finish(Request& request);

  ProtocolLimits limits_;
  Dialect forced_;
  Dialect dialect_ = Dialect::unknown;
  bool first_ = true;       // no request has been decoded yet
  bool ambiguous_ = false;
  bool silent_ = false;     // silence() was called for the request in progress

  std::string pending_;     // bytes of requests that are not whole
  std::string_view input_;  // pending_, or the caller's bytes
  std::size_t begin_ = 0;   // in input_: where the request in progress starts

  bool started_ = false;    // its code has been read
  Op op_ = Op::set;
  const char* step_ = "";   // the next field, see kLayouts
  std::size_t at_ = 0;      // how far it has been read, from its start
  std::uint64_t left_ = 0;  // elements still to come of a list
  bool counted_ = false;    // the list's count has been read
  std::int64_t number_ = 0;
  std::vector<Field> fields_;
  std::vector<std::string_view> many_;
  std::string error_;
};

}  // namespace dlaunch::store
