// Any bytes, cut anywhere, from several connections of any dialect, into decoder and table. The input is a
// list of pieces: one byte that says who sends and how much, then the bytes.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "dlaunch/store/table.hpp"

namespace {

using namespace dlaunch::store;

constexpr SessionId kSessions = 4;

void check(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view input(reinterpret_cast<const char*>(data), size);
  ProtocolLimits limits;
  limits.key_bytes = 64;
  limits.keys = 32;
  limits.value_bytes = 256;
  limits.old_value_bytes = 512;
  limits.request_bytes = 1024;
  TableLimits table_limits;
  table_limits.total_bytes = 8 << 10;
  Table table(table_limits);
  std::vector<std::unique_ptr<Decoder>> decoders(kSessions);
  std::vector<Reply> replies;

  while (!input.empty()) {
    const auto head = static_cast<std::uint8_t>(input.front());
    input.remove_prefix(1);
    const SessionId id = head & 3;
    const std::string_view piece = input.substr(0, head >> 3);
    input.remove_prefix(piece.size());
    auto& decoder = decoders[id];
    if (!decoder) {
      decoder = std::make_unique<Decoder>(limits);
      table.open(id);
    }
    // A copy of its own, so that a view that outlives it is found.
    const std::vector<char> bytes(piece.begin(), piece.end());
    decoder->feed({bytes.data(), bytes.size()});
    bool closed = false;
    for (;;) {
      Request request;
      Decoder::Step step = decoder->next(request);
      if (step == Decoder::Step::more && decoder->ambiguous() && (head & 4)) {
        decoder->silence();
        step = decoder->next(request);
        check(step == Decoder::Step::request);
      }
      if (step == Decoder::Step::more) break;
      closed = step == Decoder::Step::broken;
      if (!closed) {
        check(request.key.size() <= limits.key_bytes && request.many.size() <= 2 * limits.keys);
        replies.clear();
        closed = !table.apply(id, request, replies).empty();
        for (const Reply& reply : replies) check(reply.to < kSessions && decoders[reply.to]);
        check(table.total_bytes() <= table_limits.total_bytes);
        if (!closed && (head & 4)) {
          decoder->hold();
          decoder->feed({});
        }
      }
      if (closed) break;
    }
    if (closed) {
      table.close(id);
      decoder.reset();
    }
  }
  for (SessionId id = 0; id < kSessions; ++id) {
    if (decoders[id]) table.close(id);
  }
  check(table.waits() == 0);
  table.clear();
  check(table.total_bytes() == 0);
  return 0;
}
