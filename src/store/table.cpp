#include "dlaunch/store/table.hpp"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cstring>
#include <optional>

namespace dlaunch::store {
namespace {

constexpr std::size_t kIdleWaits = 16;  // what a session that waits for nothing may keep allocated

constexpr std::string_view kFull = "the store is full";
constexpr std::string_view kNoNumber = "the value is no number";

template <class Integer>
Reply number(SessionId to, Integer value) {
  Reply reply;
  reply.to = to;
  reply.head_size = sizeof value;
  std::memcpy(reply.head.data(), &value, sizeof value);
  return reply;
}

template <class Answer>
Reply byte(SessionId to, Answer answer) {
  return number(to, static_cast<std::uint8_t>(answer));
}

Reply vec(SessionId to, Bytes body) {
  Reply reply = number(to, static_cast<std::uint64_t>(body.size()));
  reply.body = std::move(body);
  return reply;
}

void append_string(std::string& out, std::string_view text) {
  const std::uint64_t size = text.size();
  out.append(reinterpret_cast<const char*>(&size), sizeof size);
  out.append(text);
}

// As C's strtoll does it, since clients may ADD to what they SET: leading blanks and a sign are fine, and
// so is text after the digits.
std::optional<std::int64_t> leading_number(std::string_view text) {
  while (!text.empty() && std::strchr(" \t\n\v\f\r", text.front()) && text.front()) text.remove_prefix(1);
  if (text.starts_with('+')) {
    text.remove_prefix(1);
    if (text.starts_with('-')) return std::nullopt;
  }
  std::int64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) return std::nullopt;
  return value;
}

struct Decimal {
  explicit Decimal(std::int64_t value)
      : size(static_cast<std::size_t>(std::to_chars(digits, digits + sizeof digits, value).ptr - digits)) {}
  std::string_view view() const { return {digits, size}; }

  char digits[24];
  std::size_t size;
};

// What one key counts against the limit, beside its value.
std::size_t cost(std::string_view key) { return key.size() + kEntryOverhead; }

std::int64_t wrapping_sum(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}

}  // namespace

void Table::open(SessionId session) {
  if (sessions_.size() <= session) sessions_.resize(session + 1);
}

void Table::close(SessionId id) {
  Session& session = sessions_[id];
  forget(session);
  for (const std::string& key : session.watched) {
    total_bytes_ -= cost(key);
    const auto found = watchers_.find(key);
    std::erase(found->second, id);
    if (found->second.empty()) watchers_.erase(found);
  }
  session = Session();
}

void Table::clear() {
  sessions_.clear();
  waiting_.clear();
  watchers_.clear();
  values_.clear();
  queues_.clear();
  total_bytes_ = 0;
}

std::size_t Table::waits() const {
  std::size_t count = 0;
  for (const auto& [key, list] : waiting_) {
    for (const Wait* wait = list.first; wait; wait = wait->after) ++count;
  }
  return count;
}

bool Table::present(std::string_view key) const {
  return values_.contains(key) || (!queues_.empty() && queues_.contains(key));
}

bool Table::all_present(const Request& request) const {
  return std::all_of(request.many.begin(), request.many.end(),
                     [this](std::string_view key) { return present(key); });
}

Bytes Table::value_of(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? Bytes() : found->second;
}

std::string_view Table::apply(SessionId from, const Request& request, Replies& replies) {
  assert(from < sessions_.size());
  // The client has given its WAIT up, or it would not ask for something else.
  if (sessions_[from].awaited && request.op != Op::cancel_wait && limits_.drop_stale_waits) {
    forget(sessions_[from]);
  }

  switch (request.op) {
    case Op::set:
      if (!fits(cost(request.key) + request.value.size())) return kFull;
      put(request.key, request.value, replies);
      return {};
    case Op::get: replies.push_back(vec(from, value_of(request.key))); return {};
    case Op::add: return add(from, request, replies);
    case Op::wait: return wait(from, request, replies);
    case Op::check: replies.push_back(byte(from, all_present(request) ? 0 : 1)); return {};
    case Op::compare_set: return compare_set(from, request, replies);
    case Op::num_keys: replies.push_back(number(from, static_cast<std::int64_t>(values_.size()))); return {};
    case Op::watch_key:
      if (!fits(cost(request.key))) return kFull;
      if (std::vector<SessionId>& watchers = watchers_[std::string(request.key)];
          std::find(watchers.begin(), watchers.end(), from) == watchers.end()) {
        watchers.push_back(from);
        total_bytes_ += cost(request.key);
        sessions_[from].watched.emplace_back(request.key);
      }
      replies.push_back(byte(from, WatchAnswer::registered));
      return {};
    case Op::delete_key: delete_key(from, request, replies); return {};
    case Op::append: return append(request, replies);
    case Op::multi_get:
      for (const std::string_view key : request.many) replies.push_back(vec(from, value_of(key)));
      return {};
    case Op::multi_set: return multi_set(request, replies);
    case Op::cancel_wait:
      forget(sessions_[from]);
      replies.push_back(byte(from, WaitAnswer::wait_canceled));
      return {};
    case Op::ping: replies.push_back(number(from, static_cast<std::uint32_t>(request.number))); return {};
    case Op::queue_push: return queue_push(request, replies);
    case Op::queue_pop: queue_pop(from, request, replies); return {};
    case Op::queue_len: {
      const auto found = queues_.find(request.key);
      replies.push_back(number(from, std::int64_t(found == queues_.end() ? 0 : found->second.size())));
      return {};
    }
    case Op::list_keys: list_keys(from, replies); return {};
    case Op::barrier: return barrier(from, request, replies);
  }
  return "unknown request";
}

// --- changes ---

void Table::put(std::string_view key, std::string_view value, Replies& replies) {
  auto found = values_.find(key);
  const bool created = found == values_.end();
  Bytes before;
  if (created) {
    found = values_.try_emplace(std::string(key)).first;
    total_bytes_ += cost(key);
  } else {
    total_bytes_ -= found->second.size();
    if (!watchers_.empty()) before = found->second;
  }
  total_bytes_ += value.size();
  found->second.assign(value);
  wake(key, replies);
  tell(key, created ? WatchAnswer::created : WatchAnswer::updated, before.view(), value, replies);
}

std::string_view Table::compare_set(SessionId from, const Request& request, Replies& replies) {
  const auto found = values_.find(request.key);
  const bool exists = found != values_.end();
  if (exists ? found->second.view() == request.value : request.value.empty()) {
    if (!fits(cost(request.key) + request.desired.size())) return kFull;
    put(request.key, request.desired, replies);
    replies.push_back(vec(from, value_of(request.key)));
  } else if (exists) {
    wake(request.key, replies);
    replies.push_back(vec(from, found->second));
  } else {
    // Nothing is stored, and the expectation comes back: clients of every generation know it so.
    replies.push_back(vec(from, Bytes(request.value)));
  }
  return {};
}

std::string_view Table::add(SessionId from, const Request& request, Replies& replies) {
  if (!fits(cost(request.key) + sizeof(Decimal))) return kFull;
  std::optional<std::int64_t> old = 0;
  if (const auto found = values_.find(request.key); found != values_.end()) {
    old = leading_number(found->second.view());
  }
  if (!old) return kNoNumber;
  const std::int64_t sum = wrapping_sum(*old, request.number);
  replies.push_back(number(from, sum));
  put(request.key, Decimal(sum).view(), replies);
  return {};
}

std::string_view Table::append(const Request& request, Replies& replies) {
  if (!fits(cost(request.key) + request.value.size())) return kFull;
  const auto found = values_.find(request.key);
  if (found == values_.end()) {
    put(request.key, request.value, replies);
    return {};
  }
  Bytes before;
  if (!watchers_.empty()) before = found->second;
  found->second.append(request.value);
  total_bytes_ += request.value.size();
  wake(request.key, replies);
  tell(request.key, WatchAnswer::updated, before.view(), found->second.view(), replies);
  return {};
}

std::string_view Table::multi_set(const Request& request, Replies& replies) {
  std::size_t more = 0;
  for (const std::string_view text : request.many) more += text.size();
  if (!fits(more + request.many.size() / 2 * kEntryOverhead)) return kFull;
  for (std::size_t i = 0; i + 1 < request.many.size(); i += 2) {
    put(request.many[i], request.many[i + 1], replies);
  }
  return {};
}

void Table::delete_key(SessionId from, const Request& request, Replies& replies) {
  const auto found = values_.find(request.key);
  const bool exists = found != values_.end();
  replies.push_back(number(from, std::int64_t{exists}));
  if (!exists) return;
  tell(request.key, WatchAnswer::deleted, found->second.view(), {}, replies);
  total_bytes_ -= cost(request.key) + found->second.size();
  values_.erase(found);
}

std::string_view Table::queue_push(const Request& request, Replies& replies) {
  const std::size_t size = cost(request.key) + request.value.size();
  if (!fits(size)) return kFull;
  total_bytes_ += size;
  auto queue = queues_.find(request.key);
  if (queue == queues_.end()) queue = queues_.try_emplace(std::string(request.key)).first;
  queue->second.emplace_back(request.value);

  // One element is for one waiter. Who waits for other keys besides is counted off, but not served yet.
  const std::size_t before = replies.size();
  while (replies.size() == before) {
    const auto waiting = waiting_.find(request.key);
    if (waiting == waiting_.end()) break;
    Wait& wait = *waiting->second.first;
    unlink(wait);
    count_off(wait, replies);
  }
  return {};
}

void Table::queue_pop(SessionId from, const Request& request, Replies& replies) {
  const auto found = queues_.find(request.key);
  if (found == queues_.end()) {
    replies.push_back(number(from, std::int64_t{0}));
    return;
  }
  std::deque<Bytes>& queue = found->second;
  replies.push_back(number(from, static_cast<std::int64_t>(queue.size())));
  total_bytes_ -= cost(request.key) + queue.front().size();
  replies.push_back(vec(from, std::move(queue.front())));
  queue.pop_front();
  if (queue.empty()) queues_.erase(found);
}

void Table::list_keys(SessionId from, Replies& replies) const {
  std::string body;
  for (const auto& [key, value] : values_) append_string(body, key);
  Reply reply = number(from, static_cast<std::int64_t>(values_.size()));
  reply.body = Bytes(body);
  replies.push_back(std::move(reply));
}

// --- waiting ---

std::string_view Table::wait(SessionId from, const Request& request, Replies& replies) {
  std::size_t missing = 0;
  std::size_t size = 0;
  for (const std::string_view key : request.many) {
    if (present(key)) continue;
    ++missing;
    size += cost(key);
  }
  if (missing == 0) {
    replies.push_back(byte(from, WaitAnswer::stop_waiting));
    return {};
  }
  if (!fits(size)) return kFull;
  forget(sessions_[from]);
  sessions_[from].waits.reserve(missing);
  for (const std::string_view key : request.many) {
    if (!present(key)) await(from, key);
  }
  return {};
}

std::string_view Table::barrier(SessionId from, const Request& request, Replies& replies) {
  if (!fits(2 * cost(request.key) + sizeof(Decimal))) return kFull;
  auto found = values_.find(request.key);
  std::optional<std::int64_t> before = 0;
  if (found != values_.end()) before = leading_number(found->second.view());
  if (!before) return kNoNumber;
  const std::int64_t arrived = wrapping_sum(*before, 1);
  if (found == values_.end()) {
    found = values_.try_emplace(std::string(request.key)).first;
    total_bytes_ += cost(request.key);
  }
  total_bytes_ -= found->second.size();
  found->second.assign(Decimal(arrived).view());
  total_bytes_ += found->second.size();

  if (arrived >= request.number) {
    replies.push_back(byte(from, WaitAnswer::stop_waiting));
    wake(request.key, replies);
  } else {
    forget(sessions_[from]);
    sessions_[from].waits.reserve(1);
    await(from, request.key);
  }
  return {};
}

// The caller has reserved room in the session's waits.
void Table::await(SessionId from, std::string_view key) {
  auto list = waiting_.find(key);
  if (list == waiting_.end()) {
    list = waiting_.try_emplace(std::string(key)).first;
    list->second.key = list->first;
  }
  Session& session = sessions_[from];
  assert(session.waits.size() < session.waits.capacity());
  Wait& wait = session.waits.emplace_back();
  wait.session = from;
  wait.list = &list->second;
  wait.before = list->second.last;
  (wait.before ? wait.before->after : list->second.first) = &wait;
  list->second.last = &wait;
  ++session.awaited;
  total_bytes_ += cost(key);
}

void Table::unlink(Wait& wait) {
  WaitList& list = *wait.list;
  (wait.before ? wait.before->after : list.first) = wait.after;
  (wait.after ? wait.after->before : list.last) = wait.before;
  wait.list = nullptr;
  total_bytes_ -= cost(list.key);
  if (!list.first) waiting_.erase(waiting_.find(list.key));
}

void Table::forget(Session& session) {
  if (session.awaited == 0) return;
  for (Wait& wait : session.waits) {
    if (wait.list) unlink(wait);
  }
  session.waits = {};
  session.awaited = 0;
}

// `wait` is no longer in a list.
void Table::count_off(Wait& wait, Replies& replies) {
  Session& session = sessions_[wait.session];
  if (--session.awaited > 0) return;
  replies.push_back(byte(wait.session, WaitAnswer::stop_waiting));
  if (session.waits.capacity() > kIdleWaits) session.waits = {};
  session.waits.clear();
}

void Table::wake(std::string_view key, Replies& replies) {
  if (waiting_.empty()) return;
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  Wait* wait = found->second.first;
  waiting_.erase(found);
  while (wait) {
    Wait* const after = wait->after;
    total_bytes_ -= cost(key);
    wait->list = nullptr;
    count_off(*wait, replies);
    wait = after;
  }
}

void Table::tell(std::string_view key, WatchAnswer what, std::string_view before, std::string_view after,
                 Replies& replies) {
  if (watchers_.empty()) return;
  const auto found = watchers_.find(key);
  if (found == watchers_.end()) return;
  std::string text(1, static_cast<char>(what));
  append_string(text, key);
  append_string(text, before);
  append_string(text, after);
  const Bytes body(text);
  for (const SessionId watcher : found->second) {
    replies.emplace_back();
    replies.back().to = watcher;
    replies.back().body = body;
  }
}

}  // namespace dlaunch::store
