#include "dlaunch/control/protocol.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace dlaunch::control {
namespace {

using Json = nlohmann::json;

constexpr int kMaxInt = std::numeric_limits<int>::max();
// Times are added and subtracted later, so they stay far from the ends of their type.
constexpr std::int64_t kMaxTime = std::numeric_limits<std::int64_t>::max() / 8;
constexpr std::size_t kMaxTexts = 4096;

// Writes members into an object. Reader has the same functions, so that the members of a message
// are listed once, in members() below, and both directions agree.
class Writer {
 public:
  explicit Writer(Json& object) : object_(object) {}

  template <class T>
  void number(const char* name, const T& value, T, T) {
    object_[name] = value;
  }
  void flag(const char* name, bool value) { object_[name] = value; }
  void text(const char* name, const std::string& value) { object_[name] = value; }
  void texts(const char* name, const std::vector<std::string>& values) { object_[name] = values; }
  void numbers(const char* name, const std::vector<int>& values, int, int) { object_[name] = values; }

  void status(const char* name, const ExitStatus& value) {
    object_[name] = {{"code", value.code}, {"signal", value.signal}, {"core", value.core}};
  }

  void store(const char* name, StoreHost value) {
    object_[name] = value == StoreHost::agent ? "agent" : "worker";
  }

  void layout(const char* name, const Layout& value) {
    Json runs = Json::array();
    for (std::size_t i = 0; i < value.nodes.size();) {
      const auto& first = value.nodes[i];
      Json hosts = Json::array();
      for (;
           i < value.nodes.size() && value.nodes[i].nproc == first.nproc && value.nodes[i].role == first.role;
           ++i) {
        hosts.push_back(value.nodes[i].host);
      }
      runs.push_back({{"nproc", first.nproc}, {"role", first.role}, {"hosts", std::move(hosts)}});
    }
    object_[name] = std::move(runs);
  }

 private:
  Json& object_;
};

// Reads members out of an object. The first that has a wrong type or value is remembered by name; a
// missing one keeps its default.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {}
  const std::string& broken() const { return broken_; }

  template <class T>
  void number(const char* name, T& value, T least, T most) {
    if (const Json* found = find(name)) take_number(name, *found, value, least, most);
  }

  void flag(const char* name, bool& value) {
    const Json* found = find(name);
    if (!found) return;
    if (!found->is_boolean()) return fail(name);
    value = found->get<bool>();
  }

  void text(const char* name, std::string& value) {
    if (const Json* found = find(name)) take_text(name, *found, value);
  }

  void texts(const char* name, std::vector<std::string>& values) {
    const Json* found = find_list(name, kMaxTexts);
    if (!found) return;
    values.resize(found->size());
    for (std::size_t i = 0; i < values.size(); ++i) take_text(name, (*found)[i], values[i]);
  }

  void numbers(const char* name, std::vector<int>& values, int least, int most) {
    const Json* found = find_list(name, kMaxNodes);
    if (!found) return;
    values.resize(found->size());
    for (std::size_t i = 0; i < values.size(); ++i) take_number(name, (*found)[i], values[i], least, most);
  }

  void status(const char* name, ExitStatus& value) {
    const Json* found = find(name);
    if (!found) return;
    if (!found->is_object()) return fail(name);
    Reader inner(*found);
    inner.number("code", value.code, 0, 255);
    inner.number("signal", value.signal, 0, 64);
    inner.flag("core", value.core);
    if (!inner.broken_.empty()) fail(name);
  }

  void store(const char* name, StoreHost& value) {
    std::string word = "agent";
    text(name, word);
    if (word != "agent" && word != "worker") return fail(name);
    value = word == "agent" ? StoreHost::agent : StoreHost::worker;
  }

  void layout(const char* name, Layout& value) {
    const Json* found = find_list(name, kMaxNodes);
    if (!found) return;
    std::int64_t workers = 0;
    for (const Json& run : *found) {
      if (!run.is_object()) return fail(name);
      Reader inner(run);
      NodePlace place;
      inner.number("nproc", place.nproc, 1, kMaxProcesses);
      inner.text("role", place.role);
      const Json* hosts = inner.find_list("hosts", kMaxNodes - value.nodes.size());
      if (!inner.broken_.empty() || !hosts) return fail(name);
      workers += static_cast<std::int64_t>(hosts->size()) * place.nproc;
      if (workers > kMaxWorkers) return fail(name);
      for (const Json& host : *hosts) {
        value.nodes.push_back(place);
        take_text(name, host, value.nodes.back().host);
      }
    }
  }

 private:
  const Json* find(const char* name) const {
    auto found = object_.find(name);
    return found == object_.end() ? nullptr : &*found;
  }

  const Json* find_list(const char* name, std::size_t limit) {
    const Json* found = find(name);
    if (!found) return nullptr;
    if (found->is_array() && found->size() <= limit) return found;
    fail(name);
    return nullptr;
  }

  template <class T>
  void take_number(const char* name, const Json& from, T& value, T least, T most) {
    // A number above the signed range is kept apart by the parser; each is compared in its own type.
    if (from.is_number_unsigned()) {
      auto number = from.get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(most) ||
          (least > 0 && number < static_cast<std::uint64_t>(least))) {
        return fail(name);
      }
      value = static_cast<T>(number);
    } else if (from.is_number_integer()) {
      auto number = from.get<std::int64_t>();
      if (std::is_unsigned_v<T> || number < static_cast<std::int64_t>(least)) return fail(name);
      value = static_cast<T>(number);
    } else {
      fail(name);
    }
  }

  void take_text(const char* name, const Json& from, std::string& value) {
    if (!from.is_string()) return fail(name);
    value = from.get_ref<const std::string&>();
  }

  void fail(const char* name) {
    if (broken_.empty()) broken_ = name;
  }

  const Json& object_;
  std::string broken_;
};

void members(auto& each, auto& m, const Hello*) {
  each.number("protocol", m.protocol, 0, kMaxInt);
  each.text("version", m.version);
  each.text("session", m.session);
  each.text("run_id", m.run_id);
  each.number("node_rank", m.node_rank, -1, kMaxNodes - 1);
  each.number("nnodes", m.nnodes, 1, kMaxNodes);
  each.number("nproc", m.nproc, 1, kMaxProcesses);
  each.text("role", m.role);
  each.text("host", m.host);
  each.texts("addresses", m.addresses);
  each.number("pid", m.pid, 0, kMaxInt);
}

void members(auto& each, auto& m, const Spawned*) { each.number("round", m.round, 0, kMaxInt); }

void members(auto& each, auto& m, const WorkerExited*) {
  each.number("round", m.round, 0, kMaxInt);
  each.number("rank", m.rank, 0, kMaxWorkers);
  each.number("local", m.local, 0, kMaxProcesses);
  each.number("pid", m.pid, 0, kMaxInt);
  each.status("status", m.status);
  each.number("age_us", m.age_us, std::int64_t{0}, kMaxTime);
  each.flag("evidence", m.evidence);
  each.flag("stopped", m.stopped);
  each.number("lived_us", m.lived_us, std::int64_t{0}, kMaxTime);
  each.text("exec_error", m.exec_error);
  each.text("message", m.message);
  each.texts("last_words", m.last_words);
  each.text("log", m.log);
}

void members(auto& each, auto& m, const Stopped*) {
  each.number("round", m.round, 0, kMaxInt);
  each.texts("stuck", m.stuck);
}

void members(auto& each, auto& m, const Done*) { each.number("round", m.round, 0, kMaxInt); }

void members(auto& each, auto& m, const Signalled*) { each.number("signal", m.signal, 0, 64); }

void members(auto& each, auto& m, const Pong*) {
  each.number("id", m.id, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
}

void members(auto& each, auto& m, const Bye*) { each.text("reason", m.reason); }

void members(auto& each, auto& m, const Welcome*) {
  each.number("node_rank", m.node_rank, 0, kMaxNodes - 1);
  each.number("heartbeat_ms", m.heartbeat_ms, std::int64_t{1}, kMaxTime);
}

void members(auto& each, auto& m, const Refused*) {
  each.text("reason", m.reason);
  each.flag("retry", m.retry);
}

void members(auto& each, auto& m, const Waiting*) {
  each.numbers("missing", m.missing, 0, kMaxNodes - 1);
  each.texts("here", m.here);
  each.number("left_ms", m.left_ms, std::int64_t{0}, kMaxTime);
}

void members(auto& each, auto& m, const Start*) {
  each.number("round", m.round, 0, kMaxInt);
  each.layout("layout", m.layout);
  each.number("master_port", m.master_port, std::uint16_t{0}, std::uint16_t{65535});
  each.store("store", m.store);
  each.text("notice", m.notice);
}

void members(auto& each, auto& m, const Stop*) {
  each.number("round", m.round, 0, kMaxInt);
  each.number("signal", m.signal, 1, 64);
  each.number("grace_ms", m.grace_ms, std::int64_t{0}, kMaxTime);
  each.text("reason", m.reason);
}

void members(auto& each, auto& m, const Finish*) {
  each.number("exit_code", m.exit_code, 0, 255);
  each.number("signal", m.signal, 0, 64);
  each.text("report", m.report);
}

void members(auto& each, auto& m, const Ping*) {
  each.number("id", m.id, std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max());
}

// In the order of Message's alternatives.
constexpr const char* kTypes[] = {"Hello",     "Spawned", "WorkerExited", "Stopped", "Done",
                                  "Signalled", "Pong",    "Bye",          "Welcome", "Refused",
                                  "Waiting",   "Start",   "Stop",         "Finish",  "Ping"};
static_assert(std::size(kTypes) == std::variant_size_v<Message>);

std::string body_of(const Message& message) {
  Json object = {{"type", kTypes[message.index()]}};
  Writer writer(object);
  std::visit([&]<class M>(const M& m) { members(writer, m, static_cast<const M*>(nullptr)); }, message);
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void halve(std::string& text) { text.resize(text.size() / 2); }

// The end of a list of lines is what matters most in last words.
void keep_newer_half(std::vector<std::string>& lines) {
  if (lines.size() == 1 && lines[0].size() > 1024) return halve(lines[0]);
  lines.erase(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>((lines.size() + 1) / 2));
}

void keep_first_half(auto& list) { list.resize(list.size() / 2); }

// Gives up about half of what a person can best do without.
struct Shrink {
  void operator()(Hello& m) const {
    keep_first_half(m.addresses);
    for (auto* text : {&m.version, &m.session, &m.run_id, &m.role, &m.host}) halve(*text);
  }
  void operator()(WorkerExited& m) const {
    std::size_t words = 0;
    for (const auto& line : m.last_words) words += line.size() + 1;
    auto* longest =
        std::max({&m.message, &m.exec_error, &m.log}, [](auto* a, auto* b) { return a->size() < b->size(); });
    if (words > longest->size()) {
      keep_newer_half(m.last_words);
    } else {
      halve(*longest);
    }
  }
  void operator()(Stopped& m) const { keep_first_half(m.stuck); }
  void operator()(Bye& m) const { halve(m.reason); }
  void operator()(Refused& m) const { halve(m.reason); }
  void operator()(Waiting& m) const {
    keep_first_half(m.here);
    if (m.here.empty()) keep_first_half(m.missing);
  }
  void operator()(Start& m) const {
    for (auto& node : m.layout.nodes) halve(node.host);
  }
  void operator()(Stop& m) const { halve(m.reason); }
  void operator()(Finish& m) const { halve(m.report); }
  void operator()(auto&) const {}
};

// Lists longer than a reader would take.
struct Bound {
  void operator()(Hello& m) const { m.addresses.resize(std::min(m.addresses.size(), kMaxTexts)); }
  void operator()(WorkerExited& m) const {
    auto& lines = m.last_words;
    if (lines.size() > kMaxTexts)
      lines.erase(lines.begin(), lines.end() - static_cast<std::ptrdiff_t>(kMaxTexts));
  }
  void operator()(Stopped& m) const { m.stuck.resize(std::min(m.stuck.size(), kMaxTexts)); }
  void operator()(Waiting& m) const { m.here.resize(std::min(m.here.size(), kMaxTexts)); }
  void operator()(auto&) const {}
};

Error broken(std::string why) { return Error{Errc::bad_frame, "control channel: " + std::move(why)}; }

template <std::size_t I = 0>
Result<std::optional<Message>> decode(std::string_view type, const Json& object) {
  if constexpr (I == std::variant_size_v<Message>) {
    return broken("unknown message type '" + std::string(type.substr(0, 64)) + "'");
  } else if (type != kTypes[I]) {
    return decode<I + 1>(type, object);
  } else {
    using M = std::variant_alternative_t<I, Message>;
    M message;
    Reader reader(object);
    members(reader, message, static_cast<const M*>(nullptr));
    if (!reader.broken().empty()) {
      return broken(std::string(type) + " with an unusable '" + reader.broken() + "'");
    }
    return std::optional<Message>{std::move(message)};
  }
}

}  // namespace

std::string encode(const Message& message) {
  Message bounded = message;
  std::visit(Bound{}, bounded);
  std::string body = body_of(bounded);
  // Each step halves something, so 64 of them leave nothing that could be long.
  for (int step = 0; step < 64 && body.size() > kMaxFrame; ++step) {
    std::visit(Shrink{}, bounded);
    body = body_of(bounded);
  }
  std::string frame(4, '\0');
  for (int i = 0; i < 4; ++i)
    frame[static_cast<std::size_t>(i)] = static_cast<char>(body.size() >> (8 * i) & 0xff);
  return frame + body;
}

Result<std::optional<Message>> take_message(std::string_view& in) {
  if (in.size() < 4) return std::optional<Message>{};
  std::size_t length = 0;
  for (int i = 3; i >= 0; --i)
    length = length << 8 | static_cast<unsigned char>(in[static_cast<std::size_t>(i)]);
  if (length > kMaxFrame) return broken("frame of " + std::to_string(length) + " bytes is over the limit");
  if (in.size() - 4 < length) return std::optional<Message>{};

  Json object = Json::parse(in.substr(4, length), nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return broken("frame of " + std::to_string(length) + " bytes is no JSON object");
  auto type = object.find("type");
  if (type == object.end() || !type->is_string()) return broken("frame without a type");
  auto message = decode(type->get_ref<const std::string&>(), object);
  if (message) in.remove_prefix(4 + length);
  return message;
}

}  // namespace dlaunch::control
