#include "dlaunch/store/protocol.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <optional>

namespace dlaunch::store {
namespace {

static_assert(std::endian::native == std::endian::little, "the protocol is in host byte order");

// The fields of each Op: k key, v value, n i64, p u32, K keys, P pairs of key and value.
constexpr std::array<const char*, 19> kLayouts = {"kv", "kvv", "k", "kn", "K",  "K", "",  "k", "k", "kv",
                                                  "K",  "P",   "",  "p",  "kv", "k", "k", "",  "kn"};

constexpr std::array kCodesOfA = {Op::set,  Op::compare_set, Op::get,       Op::add,       Op::check,
                                  Op::wait, Op::num_keys,    Op::watch_key, Op::delete_key};
constexpr std::array kCodesOfB = {Op::set,      Op::compare_set, Op::get,        Op::add,
                                  Op::check,    Op::wait,        Op::num_keys,   Op::delete_key,
                                  Op::append,   Op::multi_get,   Op::multi_set,  Op::cancel_wait};
constexpr std::array kCodesOf2 = {Op::set,        Op::compare_set, Op::get,         Op::add,       Op::check,
                                  Op::wait,       Op::num_keys,    Op::delete_key,  Op::append,    Op::multi_get,
                                  Op::multi_set,  Op::cancel_wait, Op::ping,        Op::queue_push,
                                  Op::queue_pop,  Op::queue_len,   Op::list_keys,   Op::barrier};

template <std::size_t N>
std::optional<Op> at(const std::array<Op, N>& codes, unsigned code) {
  if (code < N) return codes[code];
  return std::nullopt;
}

// What may stay allocated in an idle decoder.
constexpr std::size_t kIdleBytes = 4096;

}  // namespace

void Decoder::feed(std::string_view bytes) {
  if (pending_.empty()) {
    input_ = bytes;
    begin_ = 0;
  } else {
    pending_.append(bytes);
    input_ = pending_;
  }
}

void Decoder::hold() {
  const std::string_view bytes = rest();
  if (bytes.empty()) {
    if (pending_.capacity() > kIdleBytes) pending_ = {};
    pending_.clear();
  } else if (bytes.size() < input_.size() || input_.data() != pending_.data()) {
    if (input_.data() == pending_.data()) {
      pending_.erase(0, begin_);
    } else {
      pending_.assign(bytes);
    }
  }
  begin_ = 0;
  input_ = pending_;
}

Decoder::Step Decoder::stop(Take take) {
  if (take == Take::broken) return Step::broken;
  hold();
  return Step::more;
}

Decoder::Take Decoder::refuse(std::string why) {
  error_ = std::move(why);
  return Take::broken;
}

Decoder::Step Decoder::next(Request& request) {
  if (!error_.empty()) return Step::broken;
  if (dialect_ == Dialect::unknown) {
    if (const Take take = open(); take != Take::done) return stop(take);
  }
  if (!started_) {
    if (const Take take = start(); take != Take::done) return stop(take);
  }
  if (const Take take = read_fields(); take != Take::done) return stop(take);
  finish(request);
  return Step::request;
}

Decoder::Take Decoder::open() {
  constexpr std::string_view magic("\xCE\xF7\x85\x3C", 4);
  const std::string_view bytes = rest();
  if (bytes.empty()) return Take::more;
  if (forced_ != Dialect::unknown && forced_ != Dialect::two) {
    dialect_ = forced_;
    return Take::done;
  }
  if (bytes[0] == 0) {
    // Both readings have at least four more bytes to come.
    if (bytes.size() < 5) return Take::more;
    if (bytes.substr(1, 4) == magic) {
      dialect_ = Dialect::two;
      begin_ += 5;
      return Take::done;
    }
  } else if (bytes[0] == magic[0] && forced_ == Dialect::unknown) {
    if (bytes.size() < 4) return Take::more;
    if (bytes.substr(0, 4) != magic) return refuse("neither a request nor the magic number");
    dialect_ = Dialect::one_m;
    return Take::done;
  }
  if (forced_ == Dialect::two) return refuse("the first request is no VALIDATE");
  dialect_ = Dialect::one;
  return Take::done;
}

// Reads the code, and before it the magic of 1m.
Decoder::Take Decoder::start() {
  at_ = 0;
  if (dialect_ == Dialect::one_m) {
    std::uint64_t magic = 0;
    if (const Take take = take_integer(4, magic); take != Take::done) return take;
    if (magic != kMagic) return refuse("a request without the magic number");
  }
  std::uint64_t code = 0;
  if (const Take take = take_integer(1, code); take != Take::done) return take;

  if (dialect_ == Dialect::one && code >= 7 && code != 8) {
    dialect_ = code == 7 && first_ ? Dialect::one_a : Dialect::one_b;
  }
  std::optional<Op> op;
  if (dialect_ == Dialect::two) {
    if (code != 0) op = at(kCodesOf2, static_cast<unsigned>(code - 1));
  } else if (dialect_ == Dialect::one || dialect_ == Dialect::one_a) {
    op = at(kCodesOfA, static_cast<unsigned>(code));
  } else {
    op = at(kCodesOfB, static_cast<unsigned>(code));
  }
  if (!op) return refuse("unknown request code " + std::to_string(code));
  op_ = *op;
  step_ = kLayouts[static_cast<std::size_t>(op_)];
  counted_ = false;
  number_ = 0;
  fields_.clear();
  started_ = true;
  return Take::done;
}

Decoder::Take Decoder::read_fields() {
  for (; *step_; ++step_) {
    Take take = Take::done;
    std::uint64_t number = 0;
    switch (*step_) {
      case 'k': take = take_string(limits_.key_bytes, "key"); break;
      case 'v':
        take = take_string(dialect_ == Dialect::two ? limits_.value_bytes : limits_.old_value_bytes, "value");
        break;
      case 'n':
        take = take_integer(8, number);
        if (take == Take::done) number_ = static_cast<std::int64_t>(number);
        break;
      case 'p':
        take = take_integer(4, number);
        if (take == Take::done) number_ = static_cast<std::int64_t>(number);
        break;
      case 'K': take = take_many(false); break;
      case 'P': take = take_many(true); break;
    }
    if (take != Take::done) return take;
  }
  if (dialect_ == Dialect::one && op_ == Op::delete_key) {
    if (begin_ + at_ < input_.size()) {
      ambiguous_ = false;
      dialect_ = Dialect::one_b;
      op_ = Op::append;
      step_ = "v";
      return read_fields();
    }
    ambiguous_ = !silent_;
    if (!silent_) return Take::more;
    dialect_ = Dialect::one_a;
  }
  return Take::done;
}

void Decoder::silence() {
  silent_ = ambiguous_;
  ambiguous_ = false;
}

Decoder::Take Decoder::take_integer(std::size_t width, std::uint64_t& out) {
  if (input_.size() - begin_ - at_ < width) return Take::more;
  std::memcpy(&out, input_.data() + begin_ + at_, width);
  at_ += width;
  return Take::done;
}

Decoder::Take Decoder::take_string(std::uint64_t limit, const char* what) {
  const std::size_t available = input_.size() - begin_ - at_;
  if (available < 8) return Take::more;
  std::uint64_t length = 0;
  std::memcpy(&length, input_.data() + begin_ + at_, 8);
  if (length > limit) {
    return refuse(std::string("a ") + what + " of " + std::to_string(length) + " bytes, the limit is " +
                  std::to_string(limit));
  }
  if (at_ + 8 + length > limits_.request_bytes) {
    return refuse("a request of more than " + std::to_string(limits_.request_bytes) + " bytes");
  }
  if (available - 8 < length) return Take::more;
  fields_.push_back({static_cast<std::uint32_t>(at_ + 8), static_cast<std::uint32_t>(length)});
  at_ += 8 + length;
  return Take::done;
}

Decoder::Take Decoder::take_count(std::uint64_t& out) {
  if (const Take take = take_integer(8, out); take != Take::done) return take;
  if (out > limits_.keys) {
    return refuse(std::to_string(out) + " keys in one request, the limit is " + std::to_string(limits_.keys));
  }
  return Take::done;
}

Decoder::Take Decoder::take_many(bool with_values) {
  if (!counted_) {
    if (const Take take = take_count(left_); take != Take::done) return take;
    counted_ = true;
    if (with_values) left_ *= 2;
  }
  const std::uint64_t value_limit = dialect_ == Dialect::two ? limits_.value_bytes : limits_.old_value_bytes;
  for (; left_; --left_) {
    const bool value = with_values && left_ % 2;
    const Take take = take_string(value ? value_limit : limits_.key_bytes, value ? "value" : "key");
    if (take != Take::done) return take;
  }
  return Take::done;
}

void Decoder::finish(Request& request) {
  const char* base = input_.data() + begin_;
  const auto view = [&](std::size_t i) { return std::string_view(base + fields_[i].at, fields_[i].size); };
  request = Request();
  request.op = op_;
  request.number = number_;
  const char layout = *kLayouts[static_cast<std::size_t>(op_)];
  if (layout == 'K' || layout == 'P') {
    many_.clear();
    for (std::size_t i = 0; i < fields_.size(); ++i) many_.push_back(view(i));
    request.many = many_;
    if (fields_.capacity() * sizeof(Field) > kIdleBytes) fields_ = {};
  } else {
    if (fields_.size() > 0) request.key = view(0);
    if (fields_.size() > 1) request.value = view(1);
    if (fields_.size() > 2) request.desired = view(2);
  }
  begin_ += at_;
  at_ = 0;
  started_ = false;
  first_ = false;
  ambiguous_ = false;
  silent_ = false;
}

}  // namespace dlaunch::store
