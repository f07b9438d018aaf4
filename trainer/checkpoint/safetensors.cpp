#include "trainer/checkpoint/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <set>
#include <utility>

#include "trainer/checkpoint/tensor_header.hpp"
#include "trainer/file/checksum.hpp"
#include "trainer/file/new_file.hpp"

namespace trainer {
namespace {

static_assert(std::endian::native == std::endian::little, "values are kept as they lie in memory");

constexpr auto kChecksum = "xxh64";
constexpr std::string_view kNoChecksum = "0000000000000000";

// An open regular file that is read once, from its start to its end.
class Input {
 public:
  static Result<Input> open(const std::string& path) {
    // Without O_NONBLOCK a pipe of that name would be waited for.
    int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return dlaunch::last_error("open", errno == ENOENT ? Errc::not_found : Errc::failed);
    Input input(fd);
    struct stat status {};
    if (::fstat(fd, &status) != 0) return dlaunch::last_error("fstat");
    if (!S_ISREG(status.st_mode)) return Error{Errc::usage, "is no regular file"};
    input.size_ = static_cast<std::uint64_t>(status.st_size);
    return input;
  }
  Input(Input&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), size_(other.size_), offset_(other.offset_) {}
  Input& operator=(Input&&) = delete;
  ~Input() {
    if (fd_ >= 0) ::close(fd_);
  }

  std::uint64_t size() const { return size_; }
  std::uint64_t left() const { return size_ - offset_; }

  Result<> read(std::span<std::byte> bytes) {
    while (!bytes.empty()) {
      auto got = ::read(fd_, bytes.data(), bytes.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return dlaunch::last_error("byte " + std::to_string(offset_) + ": read");
      if (got == 0) return Error{Errc::usage, "byte " + std::to_string(offset_) + ": the file ends"};
      offset_ += static_cast<std::uint64_t>(got);
      bytes = bytes.subspan(static_cast<std::size_t>(got));
    }
    return {};
  }

 private:
  explicit Input(int fd) : fd_(fd) {}

  int fd_;
  std::uint64_t size_ = 0;
  std::uint64_t offset_ = 0;
};

std::array<std::byte, kHeaderStart> length_bytes(std::uint64_t length) {
  std::array<std::byte, kHeaderStart> bytes;
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = std::byte(length >> (8 * i));
  return bytes;
}

Result<std::string> read_header(Input& input) {
  if (input.size() < kHeaderStart) {
    return Error{Errc::usage,
                 "byte " + std::to_string(input.size()) + ": the file ends within the length of its header"};
  }
  std::array<std::byte, kHeaderStart> bytes;
  auto done = input.read(bytes);
  if (!done) return std::move(done).error();
  std::uint64_t length = 0;
  for (std::size_t i = bytes.size(); i-- > 0;)
    length = length << 8 | std::to_integer<std::uint64_t>(bytes[i]);
  if (length > kLargestHeader) {
    return Error{Errc::usage, "byte 0: no safetensors file: a header of " + std::to_string(length) +
                                  " bytes is over the limit of " + std::to_string(kLargestHeader)};
  }
  if (length > input.left()) {
    return Error{Errc::usage, "byte " + std::to_string(input.size()) +
                                  ": the file ends within its header of " + std::to_string(length) +
                                  " bytes"};
  }
  std::string text(static_cast<std::size_t>(length), ' ');
  done = input.read(std::as_writable_bytes(std::span(text)));
  if (!done) return std::move(done).error();
  return text;
}

Result<TensorFile> read(Input& input) {
  auto text = read_header(input);
  if (!text) return std::move(text).error();
  auto header = parse_tensor_header(*text);
  if (!header) return std::move(header).error();
  if (header->data_bytes() != input.left()) {
    return Error{Errc::usage, "byte " + std::to_string(input.size()) +
                                  ": the file ends, its tensors at byte " +
                                  std::to_string(kHeaderStart + text->size() + header->data_bytes())};
  }

  TensorFile file;
  file.metadata = std::move(header->metadata);
  auto checksum = file.metadata.find(kChecksum);
  Checksum seen;
  if (auto place = checksum_place(*text); place != text->npos)
    text->replace(place, kNoChecksum.size(), kNoChecksum);
  seen.add(std::as_bytes(std::span(*text)));
  for (auto& entry : header->entries) {
    Tensor tensor{std::move(entry.name), std::move(entry.shape), {}};
    tensor.values.resize(static_cast<std::size_t>((entry.end - entry.begin) / sizeof(float)));
    auto bytes = std::as_writable_bytes(std::span(tensor.values));
    auto done = input.read(bytes);
    if (!done) return std::move(done).error();
    seen.add(bytes);
    file.tensors.push_back(std::move(tensor));
  }
  if (checksum != file.metadata.end() && checksum->second != seen.hex()) {
    return Error{Errc::usage, "byte " + std::to_string(kHeaderStart) + ": the checksum is " +
                                  checksum->second + ", that of what is there " + seen.hex()};
  }
  return file;
}

Result<TensorHeader> header_of(const TensorFile& file) {
  TensorHeader header;
  header.metadata = file.metadata;
  header.metadata[kChecksum] = kNoChecksum;
  std::uint64_t end = 0;
  std::set<std::string> names{"__metadata__"};
  for (const auto& tensor : file.tensors) {
    auto count = element_count(tensor.shape);
    if (!count) return std::move(count).error().under("tensor '" + tensor.name + "'");
    if (*count != tensor.values.size()) {
      return Error{Errc::usage, "tensor '" + tensor.name + "' has " + std::to_string(tensor.values.size()) +
                                    " values, its shape " + std::to_string(*count)};
    }
    if (!names.insert(tensor.name).second) {
      return Error{Errc::usage, "tensor '" + tensor.name + "': the name is taken"};
    }
    auto begin = std::exchange(end, end + *count * sizeof(float));
    header.entries.push_back({tensor.name, tensor.shape, begin, end});
  }
  return header;
}

Result<> write(const std::string& path, const TensorFile& file) {
  auto header = header_of(file);
  if (!header) return std::move(header).error();
  auto text = tensor_header_text(*header);
  if (text.size() > kLargestHeader) {
    return Error{Errc::usage, "a header of " + std::to_string(text.size()) + " bytes is over the limit of " +
                                  std::to_string(kLargestHeader)};
  }
  Checksum checksum;
  checksum.add(std::as_bytes(std::span(text)));
  for (const auto& tensor : file.tensors) checksum.add(std::as_bytes(std::span(tensor.values)));
  text.replace(checksum_place(text), kNoChecksum.size(), checksum.hex());

  auto output = NewFile::create(path);
  if (!output) return std::move(output).error();
  auto done = output->write(length_bytes(text.size()));
  if (done) done = output->write(std::as_bytes(std::span(text)));
  for (auto tensor = file.tensors.begin(); done && tensor != file.tensors.end(); ++tensor) {
    done = output->write(std::as_bytes(std::span(tensor->values)));
  }
  if (done) done = output->appear();
  return done;
}

}  // namespace

const Tensor* TensorFile::find(const std::string& name) const {
  for (const auto& tensor : tensors) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

Result<> write_tensors(const std::string& path, const TensorFile& file) {
  auto done = write(path, file);
  if (!done) return std::move(done).error().under(path);
  return done;
}

Result<TensorFile> read_tensors(const std::string& path) {
  auto input = Input::open(path);
  if (!input) return std::move(input).error().under(path);
  auto file = read(*input);
  if (!file) return std::move(file).error().under(path);
  return file;
}

}  // namespace trainer
