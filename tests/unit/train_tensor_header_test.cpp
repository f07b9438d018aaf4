#include <gmock/gmock.h>

#include "trainer/checkpoint/tensor_header.hpp"

namespace trainer {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string fault(const std::string& text) {
  auto header = parse_tensor_header(text);
  return header ? "no fault" : header.error().text;
}

std::string tensor(const std::string& name, const std::string& shape, const std::string& offsets) {
  return "\"" + name + R"(":{"dtype":"F32","shape":[)" + shape + R"(],"data_offsets":[)" + offsets + "]}";
}

TEST(TensorHeader, IsReadAsOthersWriteIt) {
  auto header = parse_tensor_header(
      R"( { "b" : {"data_offsets": [24, 28], "shape": [], "dtype": "F32"},
            "__metadata__": {"format": "pt", "empty": ""},
            "a": {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
            "none": {"dtype":"F32","shape":[5,0,7],"data_offsets":[24,24]} }   )");
  ASSERT_TRUE(header) << header.error().text;
  ASSERT_EQ(header->entries.size(), 3u);
  EXPECT_EQ(header->entries[0].name, "a");  // in the order of their places
  EXPECT_THAT(header->entries[0].shape, testing::ElementsAre(2, 3));
  EXPECT_EQ(header->entries[1].name, "none");
  EXPECT_EQ(header->entries[2].name, "b");
  EXPECT_EQ(header->data_bytes(), 28u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->metadata.size(), 2u);
}

TEST(TensorHeader, WithoutTensorsIsAHeaderToo) {
  auto header = parse_tensor_header("{}");
  ASSERT_TRUE(header);
  EXPECT_EQ(header->data_bytes(), 0u);
}

TEST(TensorHeader, ComesBackFromItsText) {
  TensorHeader header;
  header.entries = {{"fc1.weight", {2, 3}, 0, 24}, {"strange \" \\ \n name", {}, 24, 28}};
  header.metadata = {{"a", "1"}, {"xxh64", "0123456789abcdef"}, {"\"quoted\"", "\xc3\xa4"}};
  auto text = tensor_header_text(header);
  EXPECT_EQ((kHeaderStart + text.size()) % 8, 0u);
  EXPECT_EQ(text.substr(checksum_place(text), 16), "0123456789abcdef");
  auto back = parse_tensor_header(text);
  ASSERT_TRUE(back) << back.error().text;
  EXPECT_EQ(back->metadata, header.metadata);
  ASSERT_EQ(back->entries.size(), 2u);
  EXPECT_EQ(back->entries[1].name, header.entries[1].name);
  EXPECT_EQ(back->entries[0].shape, header.entries[0].shape);
  EXPECT_EQ(back->entries[1].end, 28u);
}

TEST(TensorHeader, NamesTheByteOfASyntaxError) {
  EXPECT_EQ(fault(R"({"a": ?})"), "byte 14: the header is no JSON");
  EXPECT_THAT(fault(""), StartsWith("byte 8: "));
  EXPECT_THAT(fault(R"({"a":)"), HasSubstr("no JSON"));
  EXPECT_THAT(fault("{} {}"), HasSubstr("no JSON"));
  EXPECT_THAT(fault("{\"\xff\": 1}"), HasSubstr("no JSON"));
}

TEST(TensorHeader, NamesTheTensorAndItsByte) {
  auto first = tensor("a", "2", "0,8");
  EXPECT_EQ(fault("{" + first + "," + tensor("b", "1", "12,16") + "}"),
            "byte " + std::to_string(kHeaderStart + 1 + first.size() + 1) +
                ": tensor 'b' begins at 12 of the data, where the one before ends at 8");
  EXPECT_THAT(fault("{" + first + "," + tensor("b", "2", "4,12") + "}"),
              HasSubstr("where the one before ends at 8"));
  EXPECT_THAT(fault("{" + tensor("a", "2", "4,12") + "}"), HasSubstr("tensor 'a' begins at 4"));
  EXPECT_THAT(fault("{" + tensor("a", "3", "0,8") + "}"),
              HasSubstr("tensor 'a' needs 12 bytes, and has data_offsets 0 to 8"));
  EXPECT_THAT(fault("{" + tensor("a", "0", "8,0") + "}"), HasSubstr("tensor 'a'"));
}

TEST(TensorHeader, RefusesWhatTheFormatDoesNotKnow) {
  EXPECT_THAT(fault(R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}})"),
              HasSubstr("tensor 'a' is of type BF16; only F32 is read"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":[2]}})"),
              HasSubstr("needs dtype, shape and data_offsets"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})"),
              HasSubstr("two data_offsets"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"more":1}})"),
              HasSubstr("unknown key 'more'"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","dtype":"F32"}})"), HasSubstr("the key 'dtype' twice"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":[-2]}})"), HasSubstr("-2"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":[2.0]}})"), HasSubstr("2.0"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":[[2]]}})"), HasSubstr("a list"));
  EXPECT_THAT(fault(R"({"a":{"dtype":"F32","shape":"2"}})"), HasSubstr("a string"));
  EXPECT_THAT(fault(R"({"a":{"dtype":32}})"), HasSubstr("a number"));
  EXPECT_THAT(fault(R"({"a":null})"), HasSubstr("null"));
  EXPECT_THAT(fault(R"({"a":[]})"), HasSubstr("a list"));
  EXPECT_THAT(fault(R"({"__metadata__":{"step":1}})"), HasSubstr("__metadata__ has a number"));
  EXPECT_THAT(fault(R"({"__metadata__":{"a":"","a":""}})"), HasSubstr("'a' twice"));
  EXPECT_THAT(fault("[]"), HasSubstr("a list"));
  EXPECT_THAT(fault("7"), HasSubstr("a number"));
}

TEST(TensorHeader, RefusesANameThatIsThereTwice) {
  EXPECT_THAT(fault("{" + tensor("a", "2", "0,8") + "," + tensor("a", "1", "8,12") + "}"),
              HasSubstr("tensor 'a' is there twice"));
  EXPECT_THAT(fault(R"({"__metadata__":{},"__metadata__":{}})"), HasSubstr("is there twice"));
}

TEST(TensorHeader, RefusesSizesThatWrapAround) {
  // 2^62 x 4 elements are 0 when counted in 64 bits, and 2^62 elements are 0 bytes.
  EXPECT_THAT(fault("{" + tensor("a", "4611686018427387904,4", "0,0") + "}"),
              HasSubstr("larger than any file"));
  EXPECT_THAT(fault("{" + tensor("a", "4611686018427387904", "0,0") + "}"),
              HasSubstr("larger than any file"));
  EXPECT_THAT(fault("{" + tensor("a", "18446744073709551615", "0,0") + "}"), HasSubstr("over 2^63"));
  EXPECT_FALSE(element_count({-1}));
}

TEST(TensorHeader, IsRefusedWhereverItIsCut) {
  TensorHeader header;
  header.entries = {{"a", {2}, 0, 8}, {"b", {1, 1}, 8, 12}};
  header.metadata = {{"k", "v"}};
  auto text = tensor_header_text(header);
  text.resize(text.find_last_of('}') + 1);
  for (std::size_t size = 0; size < text.size(); ++size)
    EXPECT_FALSE(parse_tensor_header(text.substr(0, size)));
  EXPECT_TRUE(parse_tensor_header(text));
}

TEST(TensorHeader, DeepNestingEndsAtOnce) {
  EXPECT_THAT(fault(std::string(1'000'000, '[')), HasSubstr("a list"));
  EXPECT_THAT(fault(R"({"a":{"shape":)" + std::string(1'000'000, '[')), HasSubstr("a list"));
}

}  // namespace
}  // namespace trainer
