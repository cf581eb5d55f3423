#include "runtime/process/launch_options.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/mesh/device_mesh.h"

namespace troupe::runtime {
namespace {

constexpr char kHelp[] =
    R"(launcher [flags] RECIPE [flags of the recipe]

Runs a recipe: one driver process and as many workers as the mesh has ranks.

  --mesh MESH         how the workers are arranged: 4 (data parallel), 2x2 (data parallel x sharded),
                      or with names: dp=2,fsdp=2 (default: 1 worker)
  --num_workers N     start N workers, at least as many as the mesh needs (default: as many)
  --local             no other processes: all workers are threads of the recipe's own process
  --deterministic     as --local, on one thread in a fixed order
  --help              this page; launcher RECIPE --help shows the flags of a recipe

RECIPE is a program: a path, or the name of one beside the launcher.

  launcher --mesh 2x2 recipes/sft_lora
  launcher --local --mesh 2x2 recipes/sft_lora

Ctrl-C asks the job to save and end; a second one kills it. The exit status is that of the recipe,
130 after Ctrl-C, and 1 when a worker is lost.
)";

constexpr const char* kFlags[] = {"--mesh", "--num_workers", "--local", "--deterministic", "--help"};

/// Insertions, deletions and replacements that turn `a` into `b`.
size_t Distance(absl::string_view a, absl::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0]++;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

absl::Status UnknownFlag(absl::string_view flag) {
  const auto* nearest = std::min_element(std::begin(kFlags), std::end(kFlags), [&](const char* a, const char* b) {
    return Distance(flag, a) < Distance(flag, b);
  });
  return absl::InvalidArgumentError(absl::StrCat("no flag ", flag, ", did you mean ", *nearest,
                                                 "? Flags of the recipe come after its name"));
}

/// `--flag value` or `--flag=value`; - and _ are the same in names.
class Words {
 public:
  explicit Words(const std::vector<std::string>& words) : words_(words) {}

  bool done() const { return at_ == words_.size(); }
  bool at_flag() const { return !done() && words_[at_].size() > 1 && words_[at_][0] == '-'; }
  const std::string& raw() const { return words_[at_]; }
  std::string flag() const {
    const std::string name = words_[at_].substr(0, words_[at_].find('='));
    return absl::StartsWith(name, "--") ? "--" + absl::StrReplaceAll(name.substr(2), {{"-", "_"}}) : name;
  }
  void Next() { ++at_; }
  /// Takes the flag and its value.
  absl::StatusOr<std::string> TakeValue() {
    const std::string word = words_[at_++];
    const size_t equals = word.find('=');
    if (equals != std::string::npos) return word.substr(equals + 1);
    if (done()) return absl::InvalidArgumentError(absl::StrCat(word, " needs a value"));
    return words_[at_++];
  }

 private:
  const std::vector<std::string>& words_;
  size_t at_ = 0;
};

absl::Status SetMesh(const std::string& mesh, LaunchOptions* options) {
  if (!options->mesh.empty() && options->mesh != mesh) {
    return absl::InvalidArgumentError(absl::StrCat("--mesh is given twice, as ", options->mesh, " and as ", mesh));
  }
  options->mesh = mesh;
  return absl::OkStatus();
}

/// What the launcher must know, wherever it was typed.
absl::Status ReadRecipeFlags(LaunchOptions* options) {
  Words words(options->recipe_flags);
  std::vector<std::string> others;
  while (!words.done()) {
    const std::string flag = words.at_flag() ? words.flag() : "";
    if (flag == "--mesh") {
      TROUPE_ASSIGN_OR_RETURN(const std::string mesh, words.TakeValue());
      TROUPE_RETURN_IF_ERROR(SetMesh(mesh, options));
      continue;
    }
    if (words.raw() == "--local") {
      options->local = true;
    } else if (words.raw() == "--deterministic") {
      options->deterministic = true;
    } else {
      others.push_back(words.raw());
    }
    words.Next();
  }
  options->recipe_flags = std::move(others);
  return absl::OkStatus();
}

}  // namespace

std::vector<std::string> LaunchOptions::RecipeArguments() const {
  std::vector<std::string> arguments;
  if (!mesh.empty()) arguments.insert(arguments.end(), {"--mesh", mesh});
  if (deterministic) arguments.push_back("--deterministic");
  arguments.insert(arguments.end(), recipe_flags.begin(), recipe_flags.end());
  return arguments;
}

bool LaunchOptions::recipe_help() const {
  const auto is_help = [](const std::string& flag) { return flag == "--help" || flag == "-h"; };
  return std::any_of(recipe_flags.begin(), recipe_flags.end(), is_help);
}

absl::StatusOr<LaunchOptions> ParseLaunchOptions(const std::vector<std::string>& arguments) {
  LaunchOptions options;
  std::optional<int> num_workers;
  Words words(arguments);
  while (words.at_flag()) {
    const std::string flag = words.flag();
    if (flag == "--help" || flag == "-h") {
      options.help = true;
      return options;
    }
    if (flag == "--mesh") {
      TROUPE_ASSIGN_OR_RETURN(const std::string mesh, words.TakeValue());
      TROUPE_RETURN_IF_ERROR(SetMesh(mesh, &options));
    } else if (flag == "--num_workers") {
      TROUPE_ASSIGN_OR_RETURN(const std::string text, words.TakeValue());
      int number = 0;
      if (!absl::SimpleAtoi(text, &number) || number < 1 || number > DeviceMesh::kMaxSize) {
        return absl::InvalidArgumentError(
            absl::StrCat("--num_workers is \"", text, "\", not a number from 1 to ", DeviceMesh::kMaxSize));
      }
      num_workers = number;
    } else if (words.raw() == "--local") {
      options.local = true;
      words.Next();
    } else if (words.raw() == "--deterministic") {
      options.deterministic = true;
      words.Next();
    } else {
      return UnknownFlag(words.raw());
    }
  }
  if (words.done()) return absl::InvalidArgumentError("which recipe? For example: launcher --mesh 2x2 recipes/sft_lora");
  options.recipe = words.raw();
  for (words.Next(); !words.done(); words.Next()) options.recipe_flags.push_back(words.raw());
  TROUPE_RETURN_IF_ERROR(ReadRecipeFlags(&options));

  options.local = options.local || options.deterministic;
  if (!options.mesh.empty()) {
    const absl::StatusOr<DeviceMesh> mesh = DeviceMesh::Parse(options.mesh);
    if (!mesh.ok()) return Annotate(mesh.status(), "--mesh");
    options.num_workers = mesh->size();
  }
  if (num_workers.has_value() && *num_workers < options.num_workers) {
    return absl::InvalidArgumentError(absl::StrCat("mesh ", options.mesh, " needs ", options.num_workers,
                                                   " workers, --num_workers is ", *num_workers));
  }
  options.num_workers = num_workers.value_or(options.num_workers);
  return options;
}

std::string LaunchHelp() { return kHelp; }

}  // namespace troupe::runtime
