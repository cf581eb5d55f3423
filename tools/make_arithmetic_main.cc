// Makes a dataset of school arithmetic word problems: JSON lines with `question` and `answer`, which ends in `#### N`.
//
//   make_arithmetic --train 4000 --eval 256 --seed 1 --output_dir recipes/data/arithmetic
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "actors/options/option_parser.h"
#include "engine/io/atomic_directory.h"
#include "engine/random/philox.h"

namespace {

using troupe::engine::Philox;
using troupe::engine::RandomPurpose;

const std::vector<std::string> kNames = {"Ann", "Ben", "Cara", "Dan", "Eva", "Finn", "Gina", "Hugo", "Ida", "Jon", "Kim", "Leo"};
const std::vector<std::string> kThings = {"apples", "books", "cards", "coins", "eggs", "nuts", "pens", "shells", "stamps", "stones"};

/// Draws of one problem, in order.
class Draws {
 public:
  Draws(uint64_t seed, uint64_t problem) : philox_(seed, RandomPurpose::kSampling, problem) {}
  int64_t Below(int64_t n) { return static_cast<int64_t>(philox_.Block(next_++)[0] % static_cast<uint64_t>(n)); }
  int64_t Between(int64_t low, int64_t high) { return low + Below(high - low + 1); }
  const std::string& Of(const std::vector<std::string>& words) { return words[static_cast<size_t>(Below(static_cast<int64_t>(words.size())))]; }

 private:
  Philox philox_;
  uint64_t next_ = 0;
};

struct Problem {
  std::string question, answer;
};

/// Every name of `text` in braces becomes its value.
std::string Fill(const char* text, const std::string& name, const std::string& other, const std::string& things, const std::vector<int64_t>& n) {
  return absl::StrReplaceAll(text, {{"{N}", name}, {"{M}", other}, {"{T}", things}, {"{a}", absl::StrCat(n[0])}, {"{b}", absl::StrCat(n[1])},
                                    {"{c}", absl::StrCat(n[2])}, {"{r}", absl::StrCat(n[3])}, {"{s}", absl::StrCat(n[4])}});
}

Problem Make(uint64_t seed, uint64_t index) {
  Draws draw(seed, index);
  const std::string name = draw.Of(kNames), things = draw.Of(kThings);
  std::string other = draw.Of(kNames);
  while (other == name) other = draw.Of(kNames);
  switch (draw.Below(6)) {
    case 0:
    case 1: {
      const int64_t a = draw.Between(2, 60), b = draw.Between(2, 98 - a);
      const char* questions[] = {"{N} has {a} {T}. {M} gives {N} {b} more. How many {T} does {N} have now?",
                                 "{N} has {a} {T} and {M} has {b} {T}. How many {T} do they have together?",
                                 "There are {a} {T} in a box. {N} puts in {b} more. How many {T} are in the box?"};
      const char* question = questions[draw.Below(3)];
      return {Fill(question, name, other, things, {a, b, 0, a + b, 0}), Fill("{a} + {b} = {r}\n#### {r}", name, other, things, {a, b, 0, a + b, 0})};
    }
    case 2: {
      const int64_t a = draw.Between(10, 90), b = draw.Between(1, a - 1);
      const char* questions[] = {"{N} has {a} {T}. {N} gives {b} to {M}. How many {T} are left?",
                                 "There are {a} {T} on a table. {N} takes {b} of them. How many {T} are still there?"};
      const char* question = questions[draw.Below(2)];
      return {Fill(question, name, other, things, {a, b, 0, a - b, 0}), Fill("{a} - {b} = {r}\n#### {r}", name, other, things, {a, b, 0, a - b, 0})};
    }
    case 3: {
      const int64_t a = draw.Between(2, 9), b = draw.Between(2, 9);
      return {Fill("{N} has {a} bags with {b} {T} in each bag. How many {T} does {N} have?", name, other, things, {a, b, 0, a * b, 0}),
              Fill("{a} * {b} = {r}\n#### {r}", name, other, things, {a, b, 0, a * b, 0})};
    }
    case 4: {
      const int64_t a = draw.Between(2, 40), b = draw.Between(2, 40), c = draw.Between(1, a + b - 1);
      return {Fill("{N} has {a} {T}. {N} finds {b} more and then loses {c}. How many {T} does {N} have now?", name, other, things,
                   {a, b, c, a + b, a + b - c}),
              Fill("{a} + {b} = {r}\n{r} - {c} = {s}\n#### {s}", name, other, things, {a, b, c, a + b, a + b - c})};
    }
    default: {
      const int64_t a = draw.Between(2, 9), b = draw.Between(2, 9), c = draw.Between(1, 15);
      return {Fill("{N} buys {a} boxes of {b} {T} and has {c} {T} at home. How many {T} does {N} have?", name, other, things,
                   {a, b, c, a * b, a * b + c}),
              Fill("{a} * {b} = {r}\n{r} + {c} = {s}\n#### {s}", name, other, things, {a, b, c, a * b, a * b + c})};
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  int64_t train = 4000, eval = 256, seed = 1;
  std::string output_dir = "arithmetic";
  troupe::actors::OptionParser parser("make_arithmetic", "makes school arithmetic word problems");
  parser.Add("train", &train, "rows to train on").Min(1);
  parser.Add("eval", &eval, "rows held out, none of them among those to train on").Min(1);
  parser.Add("seed", &seed, "the same seed gives the same rows");
  parser.Add("output_dir", &output_dir, "where train.jsonl and eval.jsonl go");
  parser.ParseOrExit(argc, argv);

  std::set<std::string> seen;
  std::string texts[2];
  const int64_t wanted[2] = {eval, train};
  uint64_t index = 0;
  for (int part = 0; part < 2; ++part) {
    for (int64_t rows = 0; rows < wanted[part];) {
      if (index > static_cast<uint64_t>(train + eval) * 100) {
        std::fprintf(stderr, "make_arithmetic: there are not %lld different problems\n", static_cast<long long>(train + eval));
        return 1;
      }
      const Problem problem = Make(static_cast<uint64_t>(seed), index++);
      if (!seen.insert(problem.question).second) continue;
      const std::string answer = absl::StrReplaceAll(problem.answer, {{"\n", "\\n"}});
      absl::StrAppend(&texts[part], "{\"question\": \"", problem.question, "\", \"answer\": \"", answer, "\"}\n");
      ++rows;
    }
  }
  std::error_code error;
  std::filesystem::create_directories(output_dir, error);
  for (const auto& [name, text] : {std::pair{"/eval.jsonl", &texts[0]}, {"/train.jsonl", &texts[1]}}) {
    if (const absl::Status status = troupe::engine::WriteFile(output_dir + name, *text); !status.ok()) {
      std::fprintf(stderr, "make_arithmetic: %s\n", std::string(status.message()).c_str());
      return 1;
    }
  }
  std::printf("%lld rows to train on and %lld held out in %s\n", static_cast<long long>(train), static_cast<long long>(eval), output_dir.c_str());
  return 0;
}
