#include "libgraph/data/safetensors.h"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstring>
#include <fstream>
#include <sstream>

#include "tests/support/find_tensor.h"
#include "tests/support/temp_folder.h"

using namespace sg;

namespace {

std::string with_header(std::string_view header, std::string_view data) {
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(header.size() >> 8 * i & 0xFF);
  return out + std::string(header) + std::string(data);
}

struct Fault {
  std::string message;
  uint64_t offset = 0;
};

Fault fault_of(const std::string& bytes) {
  auto file = TensorFile::parse(bytes, "test.safetensors");
  REQUIRE(!file.ok());
  REQUIRE(file.error().kind == ErrorKind::unreadable);
  REQUIRE(file.error().where.offset);
  return {file.error().message, *file.error().where.offset};
}

Fault fault_of(std::string_view header, std::string_view data) { return fault_of(with_header(header, data)); }

std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

}  // namespace

TEST_CASE("headers whose length looks like the begin of a pickle are read") {
  for (size_t length : {640, 896, 1152, 1408}) {
    std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})";
    header.resize(length, ' ');
    CHECK(TensorFile::parse(with_header(header, "x"), "x").ok());
  }
  CHECK(fault_of(std::string("\x80\x04\x95\x10\0\0\0\0\0\0\0", 11)).message.find("pickle") != std::string::npos);
}

TEST_CASE("tensors are found by name, where they lie") {
  const std::string bytes = with_header(
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[4,12]},)"
      R"("a":{"shape":[],"data_offsets":[0,4],"dtype":"F32"},"none":{"dtype":"I64","shape":[0,7],"data_offsets":[12,12]}}  )",
      "0123abcdefgh");
  auto file = TensorFile::parse(bytes, "x");
  REQUIRE(file.ok());
  REQUIRE(file->tensors().size() == 3);
  CHECK(file->metadata() == std::vector<std::pair<std::string, std::string>>{{"format", "pt"}});
  const StoredTensor* b = test::find_tensor(*file, "b");
  REQUIRE(b != nullptr);
  CHECK((b->dtype == DType::bf16 && b->shape == std::vector<int64_t>{2, 2} && b->bytes == 8));
  CHECK(std::string_view(static_cast<const char*>(b->data), 8) == "abcdefgh");
  CHECK(b->offset == bytes.size() - 8);
  CHECK(test::find_tensor(*file, "a")->shape.empty());
  CHECK(test::find_tensor(*file, "none")->bytes == 0);
  CHECK(test::find_tensor(*file, "c") == nullptr);
}

TEST_CASE("a broken safetensors file is an error with its place") {
  CHECK(fault_of(std::string("12345")).message == "not a safetensors file: it ends after 5 bytes");
  CHECK(fault_of(std::string(8, '\xFF')).message.find("a header of 18446744073709551615 bytes") != std::string::npos);
  CHECK(fault_of(with_header("{}", "").substr(0, 9)).offset == 9);
  CHECK(fault_of("[]", "").message == "not a safetensors file: the header does not begin with {");
  CHECK(fault_of(R"({"a":1})", "").offset == 8 + 5);
  CHECK(fault_of(R"({"a":{"dtype":"F32","shape":[1])", "").message.find("not JSON") != std::string::npos);
  CHECK(fault_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}} x)", "1234").offset == 8 + 55);

  struct Case {
    const char *tensor, *message;
  };
  for (Case c :
       {Case{R"("dtype":"F31","shape":[],"data_offsets":[0,4])", "unknown element type `F31`"},
        Case{R"("dtype":7,"shape":[],"data_offsets":[0,4])", "expected a string, not an integer"},
        Case{R"("dtype":"F32","data_offsets":[0,4])", "the tensor has no shape"},
        Case{R"("dtype":"F32","shape":[],"shape":[],"data_offsets":[0,4])", "`shape` occurs twice"},
        Case{R"("dtype":"F32","shape":[],"data_offsets":[0,4],"more":1)", "nothing else"},
        Case{R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])", "expected an integer from 0"},
        Case{R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])", "expected an integer from 0"},
        Case{R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])", "expected an integer from 0"},
        Case{R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4])", "too large"},
        Case{R"("dtype":"F32","shape":[2],"data_offsets":[0,4])", "f32[2] needs 8 bytes, its data_offsets hold 4"},
        Case{R"("dtype":"F32","shape":[],"data_offsets":[4,0])", "ends before it begins"},
        Case{R"("dtype":"F32","shape":[],"data_offsets":[0,5])", "ends at byte 5 of the data, which has 4"},
        Case{R"("dtype":"F32","shape":[],"data_offsets":[0])", "a list of two integers"}}) {
    CAPTURE(c.tensor);
    Fault fault = fault_of(std::string(R"({"a":{)") + c.tensor + "}}", "1234");
    CHECK(fault.message.find(c.message) != std::string::npos);
    CHECK(fault.offset >= 8);
  }
  std::string many = R"({"a":{"dtype":"U8","shape":[1)";
  for (int i = 0; i < 64; ++i) many += ",1";
  CHECK(fault_of(many + R"(],"data_offsets":[0,1]}})", "1").message == "more than 64 dimensions");
}

TEST_CASE("tensors of a file cover its data exactly, each name once") {
  auto two = [](std::string_view a, std::string_view b, std::string_view name = "b") {
    return R"({"a":{"dtype":"U8","shape":[2],"data_offsets":)" + std::string(a) + R"(},")" + std::string(name) +
           R"(":{"dtype":"U8","shape":[2],"data_offsets":)" + std::string(b) + "}}";
  };
  CHECK(TensorFile::parse(with_header(two("[2,4]", "[0,2]"), "1234"), "x").ok());
  CHECK(fault_of(two("[0,2]", "[1,3]"), "123").message == "tensor `b` overlaps the one before it");
  CHECK(fault_of(two("[0,2]", "[0,2]"), "12").message == "tensor `b` overlaps the one before it");
  CHECK(fault_of(two("[0,2]", "[3,5]"), "12345").message == "a hole of 1 bytes before tensor `b`");
  CHECK(fault_of(two("[1,3]", "[3,5]"), "12345").message == "a hole of 1 bytes before tensor `a`");
  CHECK(fault_of(two("[0,2]", "[2,4]"), "12345").message == "1 bytes after the last tensor belong to none");
  CHECK(fault_of(two("[0,2]", "[2,4]", "a"), "1234").message == "tensor `a` occurs twice");
  CHECK(fault_of(two("[0,2]", "[2,4]", "\\u0061"), "1234").message == "tensor `a` occurs twice");
  CHECK(fault_of(R"({"__metadata__":{},"__metadata__":{}})", "").message == "__metadata__ occurs twice");
  CHECK(fault_of(R"({"__metadata__":{"k":1}})", "").message.find("expected a string") != std::string::npos);
  CHECK(fault_of("{}", "1").offset == 10);
}

TEST_CASE("every truncation of a safetensors file is an error; a flipped bit is an error or stays within the file") {
  float values[6] = {1, 2, 3, 4, 5, 6};
  int64_t count = 9;
  std::vector<TensorToWrite> list = {{"weight", DType::f32, {2, 3}, {}, values}, {"n", DType::i64, {}, {}, &count}};
  const std::string good = *tensor_file_bytes(list, {.metadata = {{"k", "v"}}});
  REQUIRE(TensorFile::parse(good, "x").ok());
  for (size_t n = 0; n < good.size(); ++n) CHECK(!TensorFile::parse(good.substr(0, n), "x").ok());
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    auto file = TensorFile::parse(damaged, "x");
    if (!file.ok()) continue;
    uint64_t total = 0;
    for (const StoredTensor& t : file->tensors()) {
      total += t.bytes;
      CHECK(t.offset + t.bytes <= damaged.size());
    }
    CHECK(total == 32);
  }
}

TEST_CASE("what is written reads back, and equal tensors give equal bytes") {
  double d = 0.5;
  uint8_t flags[3] = {1, 0, 1};
  float grid[6] = {0, 1, 2, 3, 4, 5};
  std::vector<TensorToWrite> list = {{"z", DType::boolean, {3}, {}, flags},
                                     {"grid.t", DType::f32, {3, 2}, {1, 3}, grid},
                                     {"spread", DType::f32, {2, 2}, {0, 1}, grid + 4},
                                     {"back", DType::f32, {3}, {-1}, grid + 2},
                                     {"d\"\n", DType::f64, {}, {}, &d},
                                     {"empty", DType::c64, {4, 0}, {1, 1}, nullptr}};
  const std::string bytes = *tensor_file_bytes(list);
  std::swap(list[0], list[4]);
  CHECK(*tensor_file_bytes(list) == bytes);
  CHECK(bytes.size() % 8 == (13 * 4 + 3) % 8);
  auto file = TensorFile::parse(bytes, "x");
  REQUIRE(file.ok());
  auto floats = [&](std::string_view name) {
    const StoredTensor* t = test::find_tensor(*file, name);
    std::vector<float> out(t->bytes / 4);
    std::memcpy(out.data(), t->data, t->bytes);
    return out;
  };
  CHECK(floats("grid.t") == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(floats("spread") == std::vector<float>{4, 5, 4, 5});
  CHECK(floats("back") == std::vector<float>{2, 1, 0});
  CHECK(test::find_tensor(*file, "d\"\n")->offset % 8 == 0);
  CHECK(test::find_tensor(*file, "empty")->shape == std::vector<int64_t>{4, 0});
  CHECK(std::memcmp(test::find_tensor(*file, "z")->data, flags, 3) == 0);

  std::vector<float> large(70000);
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<float>(i);
  std::vector<TensorToWrite> strided = {{"t", DType::f32, {7, 10000}, {1, 7}, large.data()}};
  const std::string transposed = *tensor_file_bytes(strided);
  auto again = TensorFile::parse(transposed, "x");
  REQUIRE(again.ok());
  float last_of_row_0 = 0;
  std::memcpy(&last_of_row_0, static_cast<const char*>(test::find_tensor(*again, "t")->data) + 9999 * 4, 4);
  CHECK(last_of_row_0 == 9999 * 7);
}

TEST_CASE("what the format cannot hold is refused") {
  float x = 1;
  auto message = [](std::vector<TensorToWrite> list) { return tensor_file_bytes(list).error().message; };
  CHECK(message({{"a", DType::f32, {}, {}, &x}, {"a", DType::f32, {}, {}, &x}}).find("occurs twice") !=
        std::string::npos);
  CHECK(message({{"a", DType::c128, {}, {}, &x}}).find("no c128") != std::string::npos);
  CHECK(message({{"__metadata__", DType::f32, {}, {}, &x}}).find("keeps this name") != std::string::npos);
  CHECK(message({{"\xFF", DType::f32, {}, {}, &x}}).find("not UTF-8") != std::string::npos);
  CHECK(message({{"a", DType::f32, {-1}, {}, &x}}).find("too large") != std::string::npos);
}

TEST_CASE("files are mapped; writes to a private mapping stay in memory") {
  sg::test::TempFolder folder;
  float values[2] = {1, 2};
  std::vector<TensorToWrite> list = {{"a", DType::f32, {2}, {}, values}};
  const std::string path = folder.file("sub/x.safetensors");
  CHECK(write_tensors(path, list).error().kind == ErrorKind::missing);
  REQUIRE(write_tensors(path, list, {.make_folders = true}).ok());
  const std::string before = read_all(path);
  CHECK(before == *tensor_file_bytes(list));
  auto file = TensorFile::open(path, TensorFile::Access::copy_on_write);
  REQUIRE(file.ok());
  const StoredTensor* a = test::find_tensor(*file, "a");
  REQUIRE(a->aligned());
  static_cast<float*>(file->writable(*a))[1] = 7;
  CHECK(static_cast<const float*>(a->data)[1] == 7);
  CHECK(read_all(path) == before);
  TensorFile moved = std::move(*file);
  CHECK(static_cast<const float*>(test::find_tensor(moved, "a")->data)[0] == 1);

  CHECK(TensorFile::open(folder.file("none")).error().kind == ErrorKind::unreadable);
  const Error of_folder = TensorFile::open(folder.file("sub")).error();
  CHECK(of_folder.message == "it is a folder");
  CHECK(of_folder.hint == "name a file in it: x.safetensors");
  std::ofstream(folder.file("empty")).flush();
  CHECK(TensorFile::open(folder.file("empty")).error().message.find("ends after 0 bytes") != std::string::npos);
}

TEST_CASE("a full disk is an error") {
  std::vector<float> values(100000);
  std::vector<TensorToWrite> list = {{"a", DType::f32, {100000}, {}, values.data()}};
  if (::access("/dev/full", W_OK) != 0) return;
  auto status = write_tensors("/dev/full", list);
  REQUIRE(!status.ok());
  CHECK(status.error().kind == ErrorKind::missing);
  CHECK(status.error().message.find("No space left") != std::string::npos);
}

TEST_CASE("alignment is said, not assumed") {
  const std::string bytes = with_header(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"b":{"dtype":"F64","shape":[1],"data_offsets":[1,9]}})",
      "123456789");
  std::vector<uint64_t> memory((bytes.size() + 7) / 8);
  std::memcpy(memory.data(), bytes.data(), bytes.size());
  auto file = TensorFile::parse({reinterpret_cast<const char*>(memory.data()), bytes.size()}, "x");
  REQUIRE(file.ok());
  CHECK(test::find_tensor(*file, "a")->aligned());
  const bool b_is_aligned = test::find_tensor(*file, "b")->offset % 8 == 0;
  CHECK(test::find_tensor(*file, "b")->aligned() == b_is_aligned);
}

TEST_CASE("safetensors: an address in a mapped file tells which file it is, as long as it is mapped") {
  const test::TempFolder folder;
  const std::string path = folder.file("a\nb.safetensors");
  const float numbers[] = {1, 2, 3};
  REQUIRE(write_tensors(path, std::vector<TensorToWrite>{{"x", DType::f32, {3}, {}, numbers}}).ok());
  const void* at = nullptr;
  {
    auto first = TensorFile::open(path);
    REQUIRE(first.ok());
    const TensorFile moved = std::move(*first);
    at = moved.tensors()[0].data;
    REQUIRE(mapped_file_at(at) != nullptr);
    CHECK(std::string_view(mapped_file_at(at)).ends_with("a\\nb.safetensors"));
    CHECK(mapped_file_at(numbers) == nullptr);
  }
  CHECK(mapped_file_at(at) == nullptr);
}
