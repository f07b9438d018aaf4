#include "trainer/data/open.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/data/assemble.hpp"
#include "trainer/data/cifar.hpp"
#include "trainer/data/gzip.hpp"
#include "trainer/data/idx.hpp"
#include "trainer/data/mapped_file.hpp"
#include "trainer/data/npy.hpp"
#include "trainer/data/pack.hpp"
#include "trainer/data/synthetic.hpp"

namespace trainer {
namespace {

using Bytes = std::vector<std::uint8_t>;

// Everything that a Dataset's spans point into.
struct Kept {
  std::vector<MappedFile> files;
  std::vector<std::unique_ptr<Bytes>> arrays;

  Bytes& array() { return *arrays.emplace_back(std::make_unique<Bytes>()); }
  Result<std::span<const std::uint8_t>> map(const std::string& path) {
    auto file = MappedFile::open(path);
    if (!file) return file.error();
    return files.emplace_back(std::move(*file)).bytes();
  }
};

bool exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0;
}

// The first of the names that lies in the folder; if none does, the first, whose opening then says so.
std::string first_of(const std::string& folder, const std::vector<std::string>& names) {
  for (const auto& name : names) {
    if (exists(folder + "/" + name)) return folder + "/" + name;
  }
  return folder + "/" + names.front();
}

Result<IdxFile> read_idx(const std::string& path, IdxKind kind, Kept& kept) {
  auto bytes = kept.map(path);
  if (!bytes) return bytes.error();
  std::span<const std::uint8_t> content = *bytes;
  if (is_gzip(content)) {
    const auto promised = [&](std::span<const std::uint8_t> head) -> Result<std::size_t> {
      auto idx = parse_idx_header(head, kind);
      if (!idx) return idx.error();
      return idx->promised_bytes;
    };
    auto expanded = expand_gzip(content, idx_header_bytes(kind), promised);
    if (!expanded) return std::move(expanded.error()).under(quoted(path));
    content = kept.array() = std::move(*expanded);
  }
  auto idx = parse_idx(content, kind);
  if (!idx) return std::move(idx.error()).under(quoted(path));
  return idx;
}

Result<Part> read_idx_part(const std::string& folder, const std::string& split, Kept& kept) {
  const std::string images_name = split + "-images-idx3-ubyte", labels_name = split + "-labels-idx1-ubyte";
  Part part;
  part.labels_file = first_of(folder, {labels_name, labels_name + ".gz"});
  part.first_label = idx_header_bytes(IdxKind::labels);
  auto images = read_idx(first_of(folder, {images_name, images_name + ".gz"}), IdxKind::images, kept);
  if (!images) return images.error();
  auto labels = read_idx(part.labels_file, IdxKind::labels, kept);
  if (!labels) return labels.error();
  part.shape = images->shape;
  part.images = images->content;
  part.labels = labels->content;
  return part;
}

Result<Part> read_npy_part(const std::string& folder, const std::string& split, Kept& kept) {
  Part part;
  const std::string path = first_of(folder, {split + "_images.npy", "x_" + split + ".npy"});
  auto bytes = kept.map(path);
  if (!bytes) return bytes.error();
  auto array = parse_npy(*bytes);
  if (!array) return std::move(array.error()).under(quoted(path));
  auto images = npy_images(*array, kept.array());
  if (!images) return std::move(images.error()).under(quoted(path));
  part.shape = images->shape;
  part.images = images->images;

  part.labels_file = first_of(folder, {split + "_labels.npy", "y_" + split + ".npy"});
  bytes = kept.map(part.labels_file);
  if (!bytes) return bytes.error();
  array = parse_npy(*bytes);
  if (!array) return std::move(array.error()).under(quoted(part.labels_file));
  auto labels = npy_labels(*array, kept.array());
  if (!labels) return std::move(labels.error()).under(quoted(part.labels_file));
  part.labels = *labels;
  part.first_label = array->offset;
  part.label_stride = npy_item_bytes(array->type);
  return part;
}

Result<Part> read_cifar_part(const std::vector<std::string>& paths, Kept& kept) {
  Bytes &images = kept.array(), &labels = kept.array();
  images.reserve(paths.size() * kCifarRecords * kCifarShape.pixels());
  for (const auto& path : paths) {
    auto file = MappedFile::open(path);
    if (!file) return file.error();
    auto fine = parse_cifar(file->bytes(), kCifarRecords, images, labels);
    if (!fine) return std::move(fine.error()).under(quoted(path));
  }
  Part part;
  part.shape = kCifarShape;
  part.images = images;
  part.labels = labels;
  part.labels_file = paths.front();
  part.label_stride = kCifarRecord;
  return part;
}

using ReadPart = std::function<Result<Part>(const std::string& split, Kept& kept)>;

Result<Dataset> read_parts(const std::string& folder, const std::string& train_name,
                           const std::string& test_name, int classes, const ReadPart& read) {
  auto kept = std::make_shared<Kept>();
  auto train = read(train_name, *kept);
  if (!train) return train.error();
  auto test = read(test_name, *kept);
  if (!test) return test.error();
  return assemble(folder, *train, *test, classes, kept);
}

bool holds_any(const std::string& folder, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (exists(folder + "/" + name)) return true;
  }
  return false;
}

Result<Dataset> open_folder(const std::string& folder) {
  if (holds_any(folder, {"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz", "t10k-images-idx3-ubyte",
                         "t10k-images-idx3-ubyte.gz"})) {
    return read_parts(folder, "train", "t10k", 0, [&](const std::string& split, Kept& kept) {
      return read_idx_part(folder, split, kept);
    });
  }
  if (holds_any(folder, {"data_batch_1.bin", "test_batch.bin"})) {
    return read_parts(folder, "data", "test", kCifarClasses, [&](const std::string& split, Kept& kept) {
      std::vector<std::string> paths;
      for (int i = 1; i <= 5 && split == "data"; ++i) {
        paths.push_back(folder + "/data_batch_" + std::to_string(i) + ".bin");
      }
      if (split == "test") paths.push_back(folder + "/test_batch.bin");
      return read_cifar_part(paths, kept);
    });
  }
  if (holds_any(folder, {"train_images.npy", "test_images.npy", "x_train.npy", "x_test.npy"})) {
    return read_parts(folder, "train", "test", 0, [&](const std::string& split, Kept& kept) {
      return read_npy_part(folder, split, kept);
    });
  }
  return Error{
      Errc::usage, "no data in " + quoted(folder),
      "it may hold IDX files (train-images-idx3-ubyte.gz and so on), CIFAR-10's binaries (data_batch_1.bin "
      "and so on) or .npy pairs (train_images.npy and so on)"};
}

Result<Dataset> open_packed(const std::string& path) {
  auto kept = std::make_shared<Kept>();
  auto bytes = kept->map(path);
  if (!bytes) return bytes.error();
  auto data = parse_pack(*bytes);
  if (!data) {
    Error error = std::move(data.error()).under(quoted(path));
    if (!is_pack(*bytes)) error.hint = "give a folder, or a file that 'train pack' made";
    return error;
  }
  data->origin = path;
  data->owner = std::move(kept);
  return data;
}

}  // namespace

Result<Dataset> open_dataset(const std::string& data, std::uint64_t seed) {
  constexpr std::string_view kWord = "synthetic";
  if (data == kWord || data.starts_with(std::string(kWord) + ":")) {
    auto options = parse_synthetic(std::string_view(data).substr(kWord.size()));
    if (!options) return options.error();
    auto made = make_synthetic(*options, seed);
    made.origin = data;
    return made;
  }
  struct stat status {};
  if (::stat(data.c_str(), &status) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) return dlaunch::last_error("stat").under(quoted(data));
    return Error{Errc::usage, "no data at " + quoted(data),
                 data == kDefaultData ? "apt-get install dataset-fashion-mnist, or --data FOLDER"
                                      : "give a folder, a file that 'train pack' made, or 'synthetic'"};
  }
  return S_ISDIR(status.st_mode) ? open_folder(data) : open_packed(data);
}

}  // namespace trainer
