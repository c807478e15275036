#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "model/safetensors_file.h"
#include "model/test_files.h"

namespace nmc::model {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class SafetensorsTest : public ::testing::Test {
 protected:
  Path write(std::string_view content) {
    const Path path = folder_.path() / "x.safetensors";
    write_test_file(path, content);
    return path;
  }
  Result<SafetensorsFile> open(std::string_view content) { return SafetensorsFile::open(write(content)); }

  // The message with which such a file is refused.
  std::string refusal(std::string_view header, std::string_view data = "") {
    const auto file = open(safetensors_bytes(header, data));
    if (file) return "opened";
    EXPECT_EQ(file.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(file.error().message, HasSubstr("x.safetensors"));
    EXPECT_LT(file.error().message.size(), 600u);
    return file.error().message;
  }

  TemporaryFolder folder_ = *TemporaryFolder::create();
};

// A header around one F32 tensor "a", its parts as JSON text.
std::string one_tensor(std::string_view shape, std::string_view offsets, std::string_view dtype = "F32") {
  return "{" + tensor_entry("a", dtype, shape, offsets) + "}";
}

TEST_F(SafetensorsTest, ReadsTensorsByName) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)" + tensor_entry("b", "F16", "[2,1]", "[4,8]") + "," +
                             tensor_entry("a", "F32", "[1]", "[0,4]") + "}";
  const auto file = open(safetensors_bytes(header, "abcdefgh"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->header().metadata.at("format"), "pt");
  ASSERT_EQ(file->header().tensors.size(), 2u);
  const TensorInfo* b = file->header().find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->dtype, Dtype::kF16);
  EXPECT_THAT(b->shape, ElementsAre(2, 1));
  const auto bytes = file->bytes(*b);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "efgh");
  EXPECT_EQ(file->header().find("c"), nullptr);
}

TEST_F(SafetensorsTest, TakesScalarsAndEmptyTensors) {
  const std::string header =
      "{" + tensor_entry("scalar", "F32", "[]", "[0,4]") + "," + tensor_entry("empty", "F32", "[0,7]", "[4,4]") + "," +
      tensor_entry("first", "BF16", "[0]", "[0,0]") + "," + tensor_entry("last", "F16", "[1]", "[4,6]") + "}";
  const auto file = open(safetensors_bytes(header, "abcdef"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->bytes(*file->header().find("scalar")).size(), 4u);
  EXPECT_THAT(file->bytes(*file->header().find("empty")), IsEmpty());
  EXPECT_EQ(file->bytes(*file->header().find("last")).size(), 2u);
}

TEST_F(SafetensorsTest, TakesAFileWithoutTensors) {
  const auto file = open(safetensors_bytes("{}"));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_THAT(file->header().tensors, IsEmpty());
}

TEST_F(SafetensorsTest, ListsTypesThatAreNotComputable) {
  const auto header = parse_safetensors_header(one_tensor("[3]", "[0,24]", "I64"), 24, "f");
  ASSERT_TRUE(header) << header.error().message;
  EXPECT_EQ(header->tensors[0].dtype, std::nullopt);
  EXPECT_EQ(header->tensors[0].dtype_name, "I64");
  EXPECT_TRUE(parse_safetensors_header(one_tensor("[4]", "[0,2]", "F4"), 2, "f"));
  const auto odd = parse_safetensors_header(one_tensor("[3]", "[0,2]", "F4"), 2, "f");
  ASSERT_FALSE(odd);
  EXPECT_THAT(odd.error().message, HasSubstr("whole number of bytes"));
}

TEST_F(SafetensorsTest, AlignsTensorsOfAMisalignedFile) {
  for (std::size_t padding = 0; padding < 8; ++padding) {
    const std::string header = "{" + tensor_entry("u", "U8", "[1]", "[0,1]") + "," +
                               tensor_entry("f", "F32", "[2]", "[1,9]") + "," +
                               tensor_entry("h", "BF16", "[3]", "[9,15]") + "}" + std::string(padding, ' ');
    const auto file = open(safetensors_bytes(header, "0abcdefghABCDEF"));
    ASSERT_TRUE(file) << file.error().message;
    const auto f = file->bytes(*file->header().find("f"));
    const auto h = file->bytes(*file->header().find("h"));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(f.data()) % 4, 0u);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(h.data()) % 2, 0u);
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(f.data()), f.size()), "abcdefgh");
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(h.data()), h.size()), "ABCDEF");
  }
}

TEST_F(SafetensorsTest, HeadersOfAnySizeAreReadWhole) {
  std::vector<std::size_t> sizes = {2'000'000, 2'000'001};
  for (std::size_t size = 99'990; size <= 100'010; ++size) sizes.push_back(size);
  for (const std::size_t size : sizes) {
    std::string header = "{" + tensor_entry("a", "F32", "[1]", "[0,4]") + ",\"__metadata__\":{\"x\":\"";
    header += std::string(size - header.size() - 3, 'x') + "\"}}";
    ASSERT_EQ(header.size(), size);
    const auto file = open(safetensors_bytes(header, "abcd"));
    ASSERT_TRUE(file) << size << ": " << file.error().message;
    const auto bytes = file->bytes(*file->header().find("a"));
    EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), "abcd");
  }
}

TEST_F(SafetensorsTest, ManyTensorsTakeLinearTime) {
  std::vector<ExpectedTensor> tensors;
  for (int i = 0; i < 20'000; ++i) tensors.push_back({fmt::format("model.layers.{}.weight", i), {1}});
  const auto file = open(safetensors_of(tensors));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->header().tensors.size(), tensors.size());
}

std::string many_ones(int count) {
  std::string shape = "[1";
  for (int i = 1; i < count; ++i) shape += ",1";
  return shape + "]";
}

// One F32 tensor "a".
struct BadTensor {
  const char* name;
  const char* shape;
  const char* offsets;
  const char* data;
  std::array<const char*, 2> expected;  // in the message
};

constexpr BadTensor kBadTensors[] = {
    {"no offsets", "[1]", "[]", "abcd", {"data_offsets", "two numbers"}},
    {"one offset", "[1]", "[4]", "abcd", {"data_offsets", "two numbers"}},
    {"three offsets", "[1]", "[0,4,8]", "abcd", {"data_offsets", "two numbers"}},
    {"reversed", "[1]", "[8,4]", "abcdabcd", {"begin before end", "[8, 4]"}},
    {"negative", "[1]", "[-1,4]", "abcd", {"data_offsets", "-1"}},
    {"2^63", "[1]", "[0,9223372036854775808]", "abcd", {"data_offsets", "9223372036854775808"}},
    {"2^63 - 1", "[1]", "[0,9223372036854775807]", "abcd", {"takes 4 bytes", "hold 9223372036854775807"}},
    {"fraction", "[1]", "[0,4.0]", "abcd", {"data_offsets", "integers"}},
    {"offsets as text", "[1]", R"("0,4")", "abcd", {"data_offsets", "integers"}},
    {"past the end", "[2]", "[0,8]", "abcd", {"8 bytes of data expected", "holds 4"}},
    {"far past the end",
     "[144115188075855872]",
     "[0,576460752303423488]",
     "abcd",
     {"576460752303423488 bytes", "holds 4"}},
    {"hole at the start", "[1]", "[4,8]", "abcdefgh", {"hole"}},
    {"shape beyond offsets", "[1000,1000]", "[0,4]", "abcd", {"4000000 bytes", "[1000, 1000]"}},
    {"shape overflow", "[4294967296,4294967296,4]", "[0,4]", "abcd", {"overflows"}},
    {"overflow before a zero", "[4294967296,4294967296,4,0]", "[0,0]", "", {"overflows"}},
    {"overflow of the type's size", "[4611686018427387904]", "[0,0]", "", {"overflows"}},
    {"negative size", "[-1]", "[0,4]", "abcd", {"shape", "-1"}},
    {"size as text", R"(["1"])", "[0,4]", "abcd", {"shape"}},
    {"shape as number", "1", "[0,4]", "abcd", {"shape"}},
};

struct BadHeader {
  const char* name;
  const char* header;
  const char* data;
  std::array<const char*, 2> expected;
};

constexpr BadHeader kBadHeaders[] = {
    {"cut JSON", R"({"a":{"dtype":"F32","shape":[1],"data_off)", "abcd", {"not valid JSON"}},
    {"not an object", "[1,2]", "", {"expected a JSON object"}},
    {"leading space", " {}", "", {"expected a JSON object"}},
    {"tensor not an object", R"({"a":3})", "abcd", {"\"a\"", "expected an object"}},
    {"no shape", R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", "abcd", {"\"a\"", "shape"}},
    {"no type", R"({"a":{"shape":[1],"data_offsets":[0,4]}})", "abcd", {"\"a\"", "dtype"}},
    {"unknown type", R"({"a":{"dtype":"F42","shape":[1],"data_offsets":[0,4]}})", "abcd", {"\"a\"", "F42"}},
    {"type as number", R"({"a":{"dtype":32,"shape":[1],"data_offsets":[0,4]}})", "abcd", {"\"a\"", "dtype"}},
    {"trailing byte",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     "abcde",
     {"4 bytes of data expected", "holds 5"}},
    {"overlap",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
     "abcdef",
     {"\"b\"", "overlap"}},
    {"same place twice",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     "abcd",
     {"\"b\"", "overlap"}},
    {"hole",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})",
     "abcdefghijkl",
     {"\"b\"", "hole"}},
    {"name twice",
     R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
     R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
     "abcd",
     {"duplicate", "\"a\""}},
    {"metadata not an object", R"({"__metadata__":"x"})", "", {"__metadata__", "object"}},
    {"metadata not text", R"({"__metadata__":{"k":1}})", "", {"__metadata__", "\"k\""}},
};

TEST_F(SafetensorsTest, RefusesABadTensorNamingFileTensorAndReason) {
  for (const BadTensor& bad : kBadTensors) {
    SCOPED_TRACE(bad.name);
    const std::string error = refusal(one_tensor(bad.shape, bad.offsets), bad.data);
    EXPECT_THAT(error, HasSubstr("\"a\""));
    for (const char* part : bad.expected) {
      if (part == nullptr) continue;
      EXPECT_THAT(error, HasSubstr(part));
    }
  }
}

TEST_F(SafetensorsTest, RefusesABadHeaderNamingFileAndReason) {
  for (const BadHeader& bad : kBadHeaders) {
    SCOPED_TRACE(bad.name);
    const std::string error = refusal(bad.header, bad.data);
    for (const char* part : bad.expected) {
      if (part == nullptr) continue;
      EXPECT_THAT(error, HasSubstr(part));
    }
  }
  EXPECT_THAT(refusal("{\"\xff\":1}"), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(std::string(8, '\0')), HasSubstr("expected a JSON object"));
  EXPECT_THAT(refusal("{\"a\":" + std::string(5000, '[') + std::string(5000, ']') + "}"), HasSubstr("too deep"));
  EXPECT_THAT(refusal(one_tensor(many_ones(10'000), "[0,8]"), "abcdefgh"), HasSubstr("10000 in all"));
}

TEST_F(SafetensorsTest, RefusesABadHeaderLength) {
  const std::string header = one_tensor("[1]", "[0,4]");
  const std::uint64_t file_bytes = 8 + header.size() + 4;
  for (const std::uint64_t length :
       {std::uint64_t{0}, std::uint64_t{1}, header.size() - 1, header.size() + 1, header.size() + 5, file_bytes,
        file_bytes + 1, kSafetensorsHeaderLimit, kSafetensorsHeaderLimit + 1, std::uint64_t{1} << 63,
        ~std::uint64_t{0} - 7, ~std::uint64_t{0}}) {
    SCOPED_TRACE(length);
    const auto file = open(safetensors_bytes(length, header, "abcd"));
    ASSERT_FALSE(file);
    EXPECT_EQ(file.error().code, ErrorCode::kCorrupt);
    EXPECT_THAT(file.error().message, AllOf(HasSubstr("x.safetensors"), HasSubstr("header")));
  }
}

TEST_F(SafetensorsTest, RefusesEveryPrefixOfAFile) {
  const std::string content = safetensors_of({{"a", {3}}, {"b", {2, 2}}});
  ASSERT_TRUE(open(content));
  for (std::size_t size = 0; size < content.size(); ++size) {
    const auto file = open(std::string_view(content).substr(0, size));
    ASSERT_FALSE(file) << size;
    EXPECT_THAT(file.error().message, HasSubstr("x.safetensors"));
  }
}

TEST_F(SafetensorsTest, NamesAFileThatIsNotThere) {
  const auto file = SafetensorsFile::open(folder_.path() / "none.safetensors");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("none.safetensors"));
}

TEST_F(SafetensorsTest, ViewsSurviveAMove) {
  auto file = open(safetensors_of({{"a", {3}}}));
  ASSERT_TRUE(file);
  const std::byte* before = file->bytes(file->header().tensors[0]).data();
  const SafetensorsFile moved = std::move(*file);
  EXPECT_EQ(moved.bytes(moved.header().tensors[0]).data(), before);
}

}  // namespace
}  // namespace nmc::model
