#include "librun/agree.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "libgraph/collective_calls.h"
#include "libgraph/sha256.h"
#include "libgraph/source_text.h"

namespace sg {
namespace {

// Limit on the nodes visited per rank: many times those of the largest step.
constexpr size_t kMaxNodes = 50'000'000;
constexpr char kBetween = '\t';

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    size_t end = std::min(text.find(at), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

// A name from the graph file without control characters, which would break the lines below.
std::string clean(std::string_view name) {
  std::string out(name);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  return out;
}

template <class T>
std::string or_unknown(const std::optional<T>& n) {
  return n ? std::to_string(*n) : "?";
}

std::optional<int64_t> number(std::string_view text) {
  int64_t n;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(n) : std::nullopt;
}

// --- a call as a line: the facts that must agree, then the node's name and source line ---

std::string facts_text(const CollectiveFacts& f) {
  bool exchange = f.send || f.receive;  // each rank has its own sizes
  return clean(f.kind) + kBetween + std::string(dtype_name(f.dtype)) + kBetween +
         (exchange ? "?" : or_unknown(f.elements)) + kBetween + clean(f.reduce_op) + kBetween + or_unknown(f.src);
}

std::string place_text(const CollectiveEvent& e) {
  return kBetween + clean(e.graph->label(e.node)) + kBetween + clean(source_of(*e.graph, e.node));
}

struct Line {
  CollectiveFacts facts;
  std::string node;  // "%x (file.py:3)"
};

Line read_line(std::string_view text) {
  std::vector<std::string_view> fields = split(text, kBetween);
  fields.resize(7);
  Line out;
  out.facts.kind = fields[0];
  out.facts.dtype = parse_dtype(fields[1]).value_or(DType::none);
  out.facts.elements = number(fields[2]);
  out.facts.reduce_op = fields[3];
  out.facts.src = number(fields[4]);
  out.node = "%" + std::string(fields[5]) + (fields[6].empty() ? "" : " (" + std::string(fields[6]) + ")");
  return out;
}

// --- all calls of one rank ---

struct GroupCalls {
  std::string facts, lines;  // of all calls, one per line
  size_t count = 0;
};

// The calls of this rank, by identity of their group.
std::map<std::string, GroupCalls> calls_of_rank(const Communicator& comm, const Job& job, const SizeValues& sizes) {
  std::map<std::string, GroupCalls> out;
  for (uint32_t g = 0; g < job.groups.size(); ++g)
    if (const std::string& identity = comm.group(GroupId(g)).identity; !identity.empty()) out[clean(identity)];
  const Program* program = job.program_of(comm.rank());
  if (!program) return out;
  size_t budget = kMaxNodes;
  for (const CollectiveEvent& e : collective_sequence(*program, &budget).events) {
    if (e.is_wait || e.group >= job.groups.size()) continue;
    auto at = out.find(clean(comm.group(GroupId(e.group)).identity));
    if (at == out.end()) continue;
    std::string facts = facts_text(collective_facts(*job.pool, e, sizes));
    at->second.facts += facts + "\n";
    at->second.lines += facts + place_text(e) + "\n";
    ++at->second.count;
  }
  return out;
}

Error disagree(std::string message, std::string hint) {
  return Error{ErrorKind::rank_failed, std::move(message), {}, std::move(hint)};
}

// What each rank reported about a group: by identity, then by rank.
using Told = std::map<std::string, std::map<uint32_t, std::string>>;

// Parses lines "identity TAB report".
Told read_summaries(const std::vector<std::string>& texts) {
  Told out;
  for (uint32_t r = 0; r < texts.size(); ++r) {
    std::vector<std::string_view> lines = split(texts[r], '\n');
    for (size_t i = 1; i < lines.size(); ++i) {
      size_t end = std::min(lines[i].find(kBetween), lines[i].size());
      out[std::string(lines[i].substr(0, end))][r] = std::string(lines[i].substr(end));
    }
  }
  return out;
}

bool all_equal(const std::map<uint32_t, std::string>& by_rank) {
  for (const auto& [rank, what] : by_rank)
    if (what != by_rank.begin()->second) return false;
  return true;
}

// "ep:0 [0 2]" -> {0, 2}
std::vector<uint32_t> ranks_of(std::string_view identity) {
  std::vector<uint32_t> out;
  size_t open = identity.rfind('[');
  if (open == std::string_view::npos) return out;
  std::string_view list = identity.substr(open + 1);
  for (std::string_view rank : split(list.substr(0, list.find(']')), ' '))
    if (auto n = number(rank)) out.push_back(static_cast<uint32_t>(*n));
  return out;
}

// Fails if some ranks of a group have it and others do not.
Status check_known(const Told& told) {
  for (const auto& [identity, by_rank] : told)
    for (uint32_t r : ranks_of(identity))
      if (!by_rank.count(r))
        return disagree("rank " + std::to_string(r) + " does not have the group " + identity + " of rank " +
                            std::to_string(by_rank.begin()->first),
                        "the ranks run files of different jobs");
  return ok_status();
}

std::string call_text(uint32_t rank, const Line& line) {
  return "rank " + std::to_string(rank) + " calls " + std::string(line.facts.kind) + " " + line.node;
}

Status compare_lines(const std::string& identity, uint32_t a, const std::string& left, uint32_t b,
                     const std::string& right) {
  std::vector<std::string_view> first = split(left, '\n'), second = split(right, '\n');
  std::string group = "@" + identity.substr(0, identity.rfind(" ["));
  if (group.ends_with(":0")) group.resize(group.size() - 2);
  std::string hint = "all ranks of a group must call its collectives in the same order, with matching sizes";
  for (size_t k = 0; k < std::max(first.size(), second.size()); ++k) {
    std::string where = "call " + std::to_string(k + 1) + " of group " + group + ": ";
    if (k >= first.size() || k >= second.size()) {
      bool here = k < first.size();
      return disagree(where + call_text(here ? a : b, read_line(here ? first[k] : second[k])) + ", which rank " +
                          std::to_string(here ? b : a) + " does not",
                      hint);
    }
    Line x = read_line(first[k]), y = read_line(second[k]);
    std::string why = collective_mismatch(y.facts, x.facts);
    if (!why.empty()) return disagree(where + call_text(b, y) + ", " + call_text(a, x) + ": " + why, hint);
  }
  return ok_status();
}

// Compares all calls of the groups whose digests differ: unknown sizes may make digests differ without harm.
Status compare_in_full(Communicator& comm, const std::map<std::string, GroupCalls>& mine, const Told& told) {
  std::string text = "full\n";
  for (const auto& [identity, by_rank] : told) {
    auto own = mine.find(identity);
    if (all_equal(by_rank) || own == mine.end()) continue;
    text += identity + kBetween;
    for (char c : own->second.lines) text += c == '\n' ? '\f' : c;
    text += "\n";
  }
  SG_ASSIGN(std::vector<std::string> texts, comm.exchange(text));
  for (const auto& [identity, by_rank] : read_summaries(texts)) {
    const auto& [first, first_text] = *by_rank.begin();
    auto lines = [](std::string s) {
      s.erase(0, 1);  // the separator
      for (char& c : s) c = c == '\f' ? '\n' : c;
      return s;
    };
    for (const auto& [rank, rank_text] : by_rank)
      SG_TRY(compare_lines(identity, first, lines(first_text), rank, lines(rank_text)));
  }
  return ok_status();
}

}  // namespace

Status agree_on_collectives(Communicator& comm, const Job& job, const SizeValues& sizes, std::string_view settings) {
  std::map<std::string, GroupCalls> mine = calls_of_rank(comm, job, sizes);
  std::string text = "world " + std::to_string(job.world) + ", " + clean(settings) + "\n";
  for (const auto& [identity, calls] : mine)
    text += identity + kBetween + std::to_string(calls.count) + kBetween + hex(sha256(calls.facts)) + "\n";
  SG_ASSIGN(std::vector<std::string> texts, comm.exchange(text));
  for (uint32_t r = 1; r < texts.size(); ++r) {
    std::string_view first = split(texts[0], '\n')[0], other = split(texts[r], '\n')[0];
    if (first != other)
      return disagree("rank " + std::to_string(r) + " runs with '" + std::string(other) + "', rank 0 with '" +
                          std::string(first) + "'",
                      "give all ranks the same options");
  }
  Told told = read_summaries(texts);
  SG_TRY(check_known(told));
  for (const auto& [identity, by_rank] : told)
    if (!all_equal(by_rank)) return compare_in_full(comm, mine, told);
  return ok_status();
}

}  // namespace sg
