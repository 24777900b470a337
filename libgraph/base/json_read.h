// JSON as simdjson's DOM has it, which holds no positions and needs none while all goes well: whoever reads carries the
// way it came (places linked through the callers' frames), and only an error walks the text again along that way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <simdjson.h>

namespace sg {

// One step from a JSON value to one inside it. Lives on the stack of whoever took the step.
struct JsonPlace {
  const JsonPlace* parent = nullptr;  // null = inside the root
  std::string_view key;               // used when `is_key`
  size_t index = 0;
  bool is_key = false;

  static JsonPlace at_key(const JsonPlace* parent, std::string_view key) { return {parent, key, 0, true}; }
  static JsonPlace at_index(const JsonPlace* parent, size_t index) { return {parent, {}, index, false}; }
};

// "nodes[17].args[2]", or from `base` on; the root is "the top level".
std::string print_place(const JsonPlace* place, const JsonPlace* base = nullptr);

// Where the value at `place` begins in well-formed JSON text; none when it cannot be told (an escaped key on the way).
std::optional<uint64_t> offset_of(std::string_view json, const JsonPlace* place);

// Where text stops being JSON, and what was expected there; none when it is well-formed.
struct JsonFault {
  uint64_t offset;
  std::string message;
};
std::optional<JsonFault> find_json_fault(std::string_view json);

// What a value is called in messages: "a string", "an integer", ...
std::string_view json_kind(simdjson::dom::element e);

// The canonical compact spelling: keys sorted (the last of equal ones), no white space.
std::string canonical_json(simdjson::dom::element e);

}  // namespace sg
