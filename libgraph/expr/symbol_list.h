// The symbols of one program: in the order of their declaration, and by name at once.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/base/ids.h"

namespace sg {

// The order is the value in the file: append only.
enum class SymbolKind : uint8_t { input, data };  // a size of the inputs; a number that only the data decides

struct Symbol {
  StrId name;
  SymbolKind kind = SymbolKind::input;
  std::optional<int64_t> min, max;  // inclusive; none = unbounded
  std::optional<int64_t> hint;      // value at capture
  int64_t divisor = 1;              // the value is a multiple of this
  StrId source;                     // "input_ids.size()[0]"; none = not said
};

class SymbolList {
 public:
  // The first of that name, null when there is none. Files may declare a name twice: the verifier says so.
  const Symbol* find(StrId name) const {
    const uint32_t* at = by_name_.find(name);
    return at ? &list_[*at] : nullptr;
  }

  void push_back(const Symbol& symbol) {
    by_name_.try_emplace(symbol.name, static_cast<uint32_t>(list_.size()));
    list_.push_back(symbol);
  }
  void pop_back() {
    const uint32_t* at = by_name_.find(list_.back().name);
    if (at && *at == list_.size() - 1) by_name_.erase(list_.back().name);
    list_.pop_back();
  }

  size_t size() const { return list_.size(); }
  bool empty() const { return list_.empty(); }
  const Symbol& operator[](size_t i) const { return list_[i]; }
  std::vector<Symbol>::const_iterator begin() const { return list_.begin(); }
  std::vector<Symbol>::const_iterator end() const { return list_.end(); }

  // To change all but `name`.
  Symbol& operator[](size_t i) { return list_[i]; }
  Symbol& back() { return list_.back(); }
  std::vector<Symbol>::iterator begin() { return list_.begin(); }
  std::vector<Symbol>::iterator end() { return list_.end(); }

 private:
  std::vector<Symbol> list_;
  FlatMap<StrId, uint32_t> by_name_;  // index into list_
};

}  // namespace sg
