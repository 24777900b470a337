#include "librun/comm/agree.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <vector>

#include "libgraph/base/sha256.h"
#include "libgraph/facts/collective_calls.h"
#include "libgraph/story/source_text.h"

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
  const RankGroup* group = nullptr;
  std::string facts, lines;  // of all calls, one per line
};

// The calls of this rank, by digest of their group.
using RankCalls = std::map<std::string_view, GroupCalls>;

RankCalls calls_of_rank(const Communicator& comm, const Job& job, const SizeValues& sizes) {
  RankCalls out;
  for (uint32_t g = 0; g < job.groups.size(); ++g)
    if (const RankGroup& group = comm.group(GroupId(g)); !group.ranks.empty()) out[group.digest].group = &group;
  const Program* program = job.program_of(comm.rank());
  if (!program) return out;
  size_t budget = kMaxNodes;
  for (const CollectiveEvent& e : collective_sequence(*program, &budget).events) {
    if (e.is_wait || e.group >= job.groups.size()) continue;
    auto at = out.find(comm.group(GroupId(e.group)).digest);
    if (at == out.end()) continue;
    std::string facts = facts_text(collective_facts(*job.pool, e, sizes));
    at->second.facts += facts + "\n";
    at->second.lines += facts + place_text(e) + "\n";
  }
  return out;
}

Error disagree(std::string message, std::string hint) {
  return Error{ErrorKind::rank_failed, std::move(message), {}, std::move(hint)};
}

// --- summaries: of each group its digest, its size, and a digest of the calls ---

std::string summary_of(const RankCalls& mine) {
  std::string out;
  for (const auto& [digest, calls] : mine)
    out += std::string(digest) + kBetween + std::to_string(calls.group->ranks.size()) + kBetween +
           hex(sha256(calls.facts)) + "\n";
  return out;
}

// What each rank reported about a group: by digest, then by rank.
using Told = std::map<std::string_view, std::map<uint32_t, std::string_view>>;

// Parses lines "digest TAB report" behind a first line. The answer refers to the texts.
Told read_reports(const Texts& texts) {
  Told out;
  for (uint32_t r = 0; r < texts.size(); ++r) {
    std::vector<std::string_view> lines = split(texts[r], '\n');
    for (size_t i = 1; i < lines.size(); ++i) {
      size_t end = std::min(lines[i].find(kBetween), lines[i].size());
      out[lines[i].substr(0, end)][r] = lines[i].substr(std::min(end + 1, lines[i].size()));
    }
  }
  return out;
}

Status check_settings(const Texts& summaries) {
  const std::string_view first = split(summaries[0], '\n')[0];
  for (uint32_t r = 1; r < summaries.size(); ++r) {
    const std::string_view other = split(summaries[r], '\n')[0];
    if (first != other)
      return disagree("rank " + std::to_string(r) + " runs with '" + std::string(other) + "', rank 0 with '" +
                          std::string(first) + "'",
                      "give all ranks the same options");
  }
  return ok_status();
}

// The first ranks of each different report; empty if all members of the group reported the same.
std::vector<uint32_t> differing_ranks(const std::map<uint32_t, std::string_view>& by_rank) {
  std::map<std::string_view, uint32_t> first;
  for (const auto& [rank, report] : by_rank) first.try_emplace(report, rank);
  std::optional<int64_t> size = number(split(by_rank.begin()->second, kBetween)[0]);
  if (first.size() == 1 && size == static_cast<int64_t>(by_rank.size())) return {};
  std::vector<uint32_t> out;
  for (const auto& [report, rank] : first) out.push_back(rank);
  std::ranges::sort(out);
  return out;
}

// --- in full: only of groups whose summaries differ. Unknown sizes may make digests differ without harm. ---

// Who has to tell: lines "digest TAB rank TAB rank ...". Empty = nobody.
std::string questions_about(const Told& told) {
  std::string out;
  for (const auto& [digest, by_rank] : told) {
    const std::vector<uint32_t> ranks = differing_ranks(by_rank);
    if (ranks.empty()) continue;
    out += digest;
    for (uint32_t r : ranks) out += kBetween + std::to_string(r);
    out += "\n";
  }
  return out;
}

// The group's identity is told by the first rank that is asked.
std::string answer_to(std::string_view questions, const RankCalls& mine, uint32_t rank) {
  std::string out = "full\n";
  for (std::string_view line : split(questions, '\n')) {
    const std::vector<std::string_view> fields = split(line, kBetween);
    const std::string own = std::to_string(rank);
    const auto asked = std::find(fields.begin() + 1, fields.end(), own);
    if (asked == fields.end()) continue;
    const GroupCalls& calls = mine.at(fields[0]);
    out += std::string(fields[0]) + kBetween;
    if (asked == fields.begin() + 1) out += clean(identity_of(*calls.group));
    out += kBetween;
    for (char c : calls.lines) out += c == '\n' ? '\f' : c;
    out += "\n";
  }
  return out;
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

// A group whose summaries differ.
struct Differing {
  const std::map<uint32_t, std::string_view>* reporters = nullptr;
  const std::map<uint32_t, std::string_view>* full = nullptr;  // of some of them: "identity TAB lines"
};

// Fails if some ranks of the group do not have it.
Status check_known(const std::string& identity, const Differing& group) {
  for (uint32_t r : ranks_of(identity))
    if (!group.reporters->count(r))
      return disagree("rank " + std::to_string(r) + " does not have the group " + identity + " of rank " +
                          std::to_string(group.reporters->begin()->first),
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

Status compare_in_full(const Told& told, const Texts& answers) {
  const Told full = read_reports(answers);
  std::multimap<std::string, Differing> differing;  // by identity
  for (const auto& [digest, by_rank] : full) {
    const std::string_view first = by_rank.begin()->second;
    differing.emplace(first.substr(0, first.find(kBetween)), Differing{&told.at(digest), &by_rank});
  }
  for (const auto& [identity, group] : differing) SG_TRY(check_known(identity, group));
  for (const auto& [identity, group] : differing) {
    auto lines_of = [](std::string_view answer) {
      std::string out(answer.substr(answer.find(kBetween) + 1));
      std::ranges::replace(out, '\f', '\n');
      return out;
    };
    const auto& [first, first_answer] = *group.full->begin();
    for (const auto& [rank, answer] : *group.full)
      SG_TRY(compare_lines(identity, first, lines_of(first_answer), rank, lines_of(answer)));
  }
  return ok_status();
}

// --- what rank 0 finds, told to all ---

constexpr std::string_view kError = "error\n";

std::string verdict_text(const Status& status) {
  return status.ok() ? "" : std::string(kError) + status.error().message + "\n" + status.error().hint;
}

Status read_verdict(std::string_view text) {
  if (!text.starts_with(kError)) return ok_status();
  text.remove_prefix(kError.size());
  const size_t end = text.find('\n');
  return disagree(std::string(text.substr(0, end)), std::string(text.substr(end + 1)));
}

// The answer of `find`, which only rank 0 calls.
template <class Fn>
Result<std::string> answer_of_first(Communicator& comm, const Fn& find) {
  SG_ASSIGN(const Texts texts, comm.exchange(comm.rank() == 0 ? find() : std::string()));
  return texts[0];
}

}  // namespace

Status agree_on_collectives(Communicator& comm, const Job& job, const SizeValues& sizes, std::string_view settings) {
  const RankCalls mine = calls_of_rank(comm, job, sizes);
  const std::string head = "world " + std::to_string(job.world) + ", " + clean(settings) + "\n";
  SG_ASSIGN(const Texts summaries, comm.exchange(head + summary_of(mine)));
  Told told;  // by rank 0 only
  SG_ASSIGN(const std::string found, answer_of_first(comm, [&] {
              if (Status s = check_settings(summaries); !s.ok()) return verdict_text(s);
              told = read_reports(summaries);
              return questions_about(told);
            }));
  if (found.empty()) return ok_status();
  SG_TRY(read_verdict(found));
  SG_ASSIGN(const Texts answers, comm.exchange(answer_to(found, mine, comm.rank())));
  SG_ASSIGN(const std::string verdict,
            answer_of_first(comm, [&] { return verdict_text(compare_in_full(told, answers)); }));
  return read_verdict(verdict);
}

}  // namespace sg
