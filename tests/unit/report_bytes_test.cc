#include "librun/report_bytes.h"

#include <catch2/catch.hpp>

namespace sg {
namespace {

// A report with something in every field that another process has to know.
SessionReport full_report(uint32_t first_rank) {
  ExpectRow row{"w", "weight", "shape", DType::bf16, 1e-3, 2e-3, 3e-3, 12, 3, 0.5, 0.25, 7, {1, 2}, 4, 5, true, true};
  ExpectReport expected{{row, ExpectRow{}}, 1, 2, 3, true, "dropout", "topk", "recorded.safetensors"};
  ComparisonReport compared{1, 2, 3, 4, 5, 6, 7, {{"a", "b", "op", "module", "f.py:3", 8, "values"}}};
  SessionReport report;
  report.ranks.push_back(
      {first_rank, {1.5, 0.5}, {{"out1", {3, 2}}}, {{"f", expected}}, compared, 10, 20, 30, 40, 50, {"one", "two"}});
  report.ranks.push_back({first_rank + 1, {}, {}, {}, {}, 1, 2, 3, 4, 5, {}});
  report.step_seconds = {0.25, 0.5};
  return report;
}

TEST_CASE("a report is the same after it was bytes") {
  const std::string bytes = report_bytes(full_report(2));
  Result<SessionReport> back = report_of_bytes(bytes);
  REQUIRE(back.ok());
  CHECK(report_bytes(*back) == bytes);
  REQUIRE(back->ranks.size() == 2);
  const RankReport& r = back->ranks[0];
  CHECK((r.rank == 2 && r.losses == std::vector{1.5, 0.5} && r.tokens == 50 && r.host_bytes == 40));
  REQUIRE(r.numbers.size() == 1);
  CHECK((r.numbers[0].name == "out1" && r.numbers[0].steps == std::vector{3.0, 2.0}));
  CHECK(r.explained == std::vector<std::string>{"one", "two"});
  REQUIRE((r.expected.size() == 1 && r.expected[0].first == "f" && r.expected[0].second.rows.size() == 2));
  const ExpectRow& row = r.expected[0].second.rows[0];
  CHECK((row.problem == "shape" && row.narrowest == DType::bf16 && row.where == std::vector<int64_t>{1, 2}));
  CHECK(r.expected[0].second.recorded == "recorded.safetensors");
  REQUIRE(r.comparison.has_value());
  CHECK((r.comparison->own_numbers == 7 && r.comparison->differences[0].place == "f.py:3"));
  CHECK(!back->ranks[1].comparison);
  CHECK(back->step_seconds == std::vector{0.25, 0.5});
}

TEST_CASE("bytes of a report that are cut off, or go on, are an error") {
  const std::string bytes = report_bytes(full_report(0));
  for (size_t n = 0; n < bytes.size(); ++n) CHECK(!report_of_bytes(std::string_view(bytes).substr(0, n)).ok());
  CHECK(!report_of_bytes(bytes + "x").ok());
  CHECK(!report_of_bytes(std::string(64, '\xFF')).ok());
}

TEST_CASE("reports of processes are joined by rank, with the slowest's steps") {
  std::vector<SessionReport> parts;
  parts.push_back(full_report(2)), parts.push_back(full_report(0));
  parts[0].step_seconds = {0.125, 0.75};
  const SessionReport all = joined_reports(std::move(parts));
  REQUIRE(all.ranks.size() == 4);
  for (uint32_t r = 0; r < 4; ++r) CHECK(all.ranks[r].rank == r);
  CHECK(all.step_seconds == std::vector{0.25, 0.75});
}

}  // namespace
}  // namespace sg
