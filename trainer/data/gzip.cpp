#include "trainer/data/gzip.hpp"

#include <zlib.h>

#include <algorithm>
#include <string>

#include "trainer/data/assemble.hpp"

namespace trainer {
namespace {

constexpr std::size_t kStep = std::size_t(1) << 20;       // first allocation; then it doubles
constexpr std::size_t kMostInput = std::size_t(1) << 30;  // zlib counts in 32 bits

class Inflater {
 public:
  explicit Inflater(std::span<const std::uint8_t> file) : file_(file) {
    ready_ = ::inflateInit2(&stream_, 16 + MAX_WBITS) == Z_OK;
  }
  ~Inflater() {
    if (ready_) ::inflateEnd(&stream_);
  }
  Inflater(const Inflater&) = delete;

  // Fills `out` as far as the stream goes; how much that was.
  Result<std::size_t> fill(std::span<std::uint8_t> out) {
    if (!ready_) return Error{Errc::failed, "zlib cannot be set up"};
    std::size_t done = 0;
    while (done < out.size() && !ended_) {
      const std::size_t in = std::min(file_.size() - taken_, kMostInput);
      const std::size_t room = std::min(out.size() - done, kMostInput);
      stream_.next_in = const_cast<Bytef*>(file_.data() + taken_);
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = out.data() + done;
      stream_.avail_out = static_cast<uInt>(room);
      const int answer = ::inflate(&stream_, Z_NO_FLUSH);
      taken_ += in - stream_.avail_in;
      done += room - stream_.avail_out;
      ended_ = answer == Z_STREAM_END;
      if (ended_ || answer == Z_OK) continue;
      if (answer == Z_BUF_ERROR && taken_ == file_.size())
        return at_byte(taken_, "the compressed data end too early");
      return at_byte(taken_, std::string("the compressed data are broken: ") +
                                 (stream_.msg ? stream_.msg : ::zError(answer)));
    }
    return done;
  }

  // The end of the stream and its checksum, which fill() may have left unread. True if it ends here.
  Result<bool> at_end() {
    std::uint8_t more = 0;
    if (ended_) return true;
    auto got = fill({&more, 1});
    if (!got) return got.error();
    return *got == 0;
  }

  std::size_t taken() const { return taken_; }

 private:
  std::span<const std::uint8_t> file_;
  z_stream stream_{};
  std::size_t taken_ = 0;
  bool ready_ = false;
  bool ended_ = false;
};

}  // namespace

bool is_gzip(std::span<const std::uint8_t> file) {
  return file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b;
}

Result<std::vector<std::uint8_t>> expand_gzip(
    std::span<const std::uint8_t> file, std::size_t head,
    const std::function<Result<std::size_t>(std::span<const std::uint8_t>)>& promised) {
  Inflater inflater(file);
  std::vector<std::uint8_t> out(head);
  auto got = inflater.fill(out);
  if (!got) return got.error();
  auto size = promised({out.data(), *got});
  if (!size) return std::move(size.error()).under("in its content");
  std::size_t done = *got;
  while (done < *size) {
    out.resize(std::min(*size, std::max(kStep, 2 * done)));
    got = inflater.fill(std::span(out).subspan(done));
    if (!got) return got.error();
    done += *got;
    if (done < out.size()) {
      return at_byte(done, "the content has " + std::to_string(done) + " bytes, its header promises " +
                               std::to_string(*size))
          .under("in its content");
    }
  }
  out.resize(*size);
  auto end = inflater.at_end();
  if (!end) return end.error();
  if (!*end) {
    return at_byte(*size, "the content goes on after the " + std::to_string(*size) +
                              " bytes that its header promises")
        .under("in its content");
  }
  if (inflater.taken() != file.size())
    return at_byte(inflater.taken(), "something follows the compressed data");
  return out;
}

}  // namespace trainer
