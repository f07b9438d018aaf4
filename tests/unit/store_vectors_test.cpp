// Every byte vector against decoder and table, without sockets: whole, cut at every byte, byte by byte.
#include "../store_vectors.hpp"

#include "dlaunch/store/table.hpp"

namespace dlaunch::store::test {
namespace {

// What a server does, with strings for sockets.
class Pretended {
 public:
  explicit Pretended(ProtocolLimits limits, Dialect dialect) : limits_(limits), dialect_(dialect) {}

  struct Connection {
    std::unique_ptr<Decoder> decoder;
    std::string out;
    bool closed = false;
  };

  Connection& connection(int number) {
    Connection& c = connections_[number];
    if (!c.decoder) {
      c.decoder = std::make_unique<Decoder>(limits_, dialect_);
      table_.open(static_cast<SessionId>(number));
    }
    return c;
  }

  void send(int number, std::string_view bytes) {
    Connection& c = connection(number);
    if (c.closed) return;
    c.decoder->feed(bytes);
    serve(number);
  }

  // Time passes on every connection.
  void silence() {
    for (auto& [number, c] : connections_) {
      if (c.closed || !c.decoder->ambiguous()) continue;
      c.decoder->silence();
      serve(number);
    }
  }

  void close(int number) {
    connection(number).closed = true;
    table_.close(static_cast<SessionId>(number));
  }

  Table& table() { return table_; }

 private:
  void serve(int number) {
    Connection& c = connections_[number];
    Request request;
    for (;;) {
      const Decoder::Step step = c.decoder->next(request);
      if (step == Decoder::Step::more) return;
      if (step == Decoder::Step::broken) return close(number);
      std::vector<Reply> replies;
      const std::string_view refusal = table_.apply(static_cast<SessionId>(number), request, replies);
      for (const Reply& reply : replies) {
        connections_[static_cast<int>(reply.to)].out.append(reply.head_view()).append(reply.body.view());
      }
      if (!refusal.empty()) return close(number);
    }
  }

  ProtocolLimits limits_;
  Dialect dialect_;
  Table table_;
  std::map<int, Connection> connections_;
};

Dialect dialect_of(const std::string& name) {
  const std::string prefix = name.substr(0, name.find('/'));
  return prefix == "1a"   ? Dialect::one_a
         : prefix == "1b" ? Dialect::one_b
         : prefix == "1m" ? Dialect::one_m
                          : Dialect::two;
}

// `pieces` cuts what is sent. Empty if all went as the vector says.
template <class Pieces>
std::string play(const Vector& vector, Dialect dialect, Pieces pieces) {
  Pretended server(limits_of(vector.name), dialect);
  for (std::size_t i = 0; i < vector.steps.size(); ++i) {
    const Step& step = vector.steps[i];
    const std::string where = vector.name + " step " + std::to_string(i) + ": ";
    Pretended::Connection& c = server.connection(step.connection);
    switch (step.what) {
      case Step::What::send:
        for (const std::string_view piece : pieces(step.bytes)) server.send(step.connection, piece);
        break;
      case Step::What::recv: {
        if (c.out.size() < step.bytes.size()) server.silence();
        const std::string got = c.out.substr(0, step.bytes.size());
        c.out.erase(0, got.size());
        if (step.unordered ? !same_strings(got, step.bytes) : got != step.bytes) {
          return where + "got " + hex(got) + ", wanted " + hex(step.bytes);
        }
        break;
      }
      case Step::What::silence:
        if (step.milliseconds > kSilenceMilliseconds) server.silence();
        if (!c.out.empty() || c.closed) return where + "no silence";
        break;
      case Step::What::pause:
        if (step.milliseconds > kSilenceMilliseconds) server.silence();
        break;
      case Step::What::closed:
        if (!c.closed || !c.out.empty()) return where + "not closed";
        break;
      case Step::What::close: server.close(step.connection); break;
    }
  }
  return {};
}

std::vector<std::string_view> whole(std::string_view bytes) { return {bytes}; }

std::vector<std::string_view> single_bytes(std::string_view bytes) {
  std::vector<std::string_view> out;
  for (std::size_t i = 0; i < bytes.size(); ++i) out.push_back(bytes.substr(i, 1));
  return out;
}

template <class Pieces>
int play_all(Pieces pieces) {
  int played = 0;
  for (const Vector& vector : vectors()) {
    if (shows_the_legacy_answer(vector.name)) continue;
    ++played;
    EXPECT_EQ(play(vector, dialect_of(vector.name), pieces), "") << "told the dialect";
    if (!vector.told_apart) continue;
    EXPECT_EQ(play(vector, Dialect::unknown, pieces), "") << "not told the dialect";
  }
  return played;
}

TEST(StoreVectors, AllOfThemAreThere) { EXPECT_EQ(vectors().size(), 214u); }

TEST(StoreVectors, PassWhole) { EXPECT_EQ(play_all(whole), 206); }

TEST(StoreVectors, PassByteByByte) { EXPECT_EQ(play_all(single_bytes), 206); }

TEST(StoreVectors, PassCutInTwoAtEveryByte) {
  for (const Vector& vector : vectors()) {
    if (shows_the_legacy_answer(vector.name) || !vector.told_apart) continue;
    std::size_t longest = 0;
    for (const Step& step : vector.steps) longest = std::max(longest, step.bytes.size());
    for (std::size_t cut = 0; cut < longest; cut += longest > 2000 ? 101 : 1) {
      const auto pieces = [cut](std::string_view bytes) {
        if (cut >= bytes.size()) return whole(bytes);
        return std::vector<std::string_view>{bytes.substr(0, cut), bytes.substr(cut)};
      };
      ASSERT_EQ(play(vector, Dialect::unknown, pieces), "") << "cut at " << cut;
    }
  }
}

TEST(StoreVectors, WhereTheTwoServersOfPyTorchDifferTheNewerOneIsFollowed) {
  int differing = 0;
  for (const Vector& vector : vectors()) {
    if (!shows_the_legacy_answer(vector.name)) continue;
    EXPECT_NE(play(vector, dialect_of(vector.name), whole), "") << vector.name;
    ++differing;
  }
  EXPECT_EQ(differing, 8);
}

}  // namespace
}  // namespace dlaunch::store::test
