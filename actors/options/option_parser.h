/// Turns the command line into the fields of a struct that is described once.
///
///   struct Options { std::string model; int64_t lora_rank = 8; bool strict = false; };
///   Options options;
///   OptionParser parser("sft_lora", "fine-tunes a language model with LoRA");
///   parser.Group("model");
///   parser.Add("model", &options.model, "folder in Hugging Face layout");
///   parser.Add("lora_rank", &options.lora_rank, "rank of the adapter").Min(1);
///   parser.ParseOrExit(argc, argv);
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace troupe::actors {

class OptionParser;

/// One flag or positional argument; its default is what the field holds when it is added.
class Option {
 public:
  using Field = std::variant<std::string*, int64_t*, double*, bool*, std::vector<std::string>*>;

  /// Another name for the same flag, shown in --help; args.json has the first.
  Option& Alias(std::string name);
  /// The values that are accepted (of a list: of each element).
  Option& OneOf(std::vector<std::string> values);
  /// Bounds of a number.
  Option& Min(double bound);
  Option& Above(double bound);
  Option& Max(double bound);
  Option& Below(double bound);
  /// What --help says about the default, where the value itself says nothing.
  Option& DefaultText(std::string text);
  /// A list may also be written with commas.
  Option& Commas();
  /// A positional argument that must be there.
  Option& Required();
  /// Accepted for the sake of another program and not kept: not in args.json.
  Option& Ignored();

  const std::string& name() const { return name_; }

 private:
  friend class OptionParser;

  std::string name_;
  std::vector<std::string> aliases_;
  Field field_;
  std::string help_;
  std::string group_;
  std::string default_text_;
  std::vector<std::string> values_;
  std::optional<double> min_, above_, max_, below_;
  bool commas_ = false;
  bool positional_ = false;
  bool required_ = false;
  bool ignored_ = false;
  bool given_ = false;
};

/// What is accepted: `--flag value`, `--flag=value`, `--flag` for a bool, `--flag a b c` for a list; `-` and `_` are
/// the same in names; a flag given twice keeps the later value; `--` ends the flags.
///
/// Lifetime the fields outlive the parser; references to options live as long as it.
class OptionParser {
 public:
  OptionParser(std::string program, std::string summary);
  ~OptionParser();
  OptionParser(const OptionParser&) = delete;
  OptionParser& operator=(const OptionParser&) = delete;

  /// A heading in --help for the flags that follow.
  void Group(std::string title);
  Option& Add(std::string name, Option::Field field, std::string help);
  /// Takes words that belong to no flag, in the order of the calls; a list takes all that are left.
  Option& AddPositional(std::string name, Option::Field field, std::string help);

  /// Errors  INVALID_ARGUMENT naming the flag or value, and the nearest one that exists.
  absl::Status Parse(const std::vector<std::string>& arguments);
  absl::Status Parse(int argc, char** argv);
  /// Prints --help and exits 0, or an error and exits 2.
  void ParseOrExit(int argc, char** argv);

  /// --help or -h was among the arguments; nothing else was checked then.
  bool help_requested() const { return help_requested_; }
  /// Whether a flag was on the command line, by any of its names.
  ///
  /// Checks  the flag exists.
  bool given(absl::string_view name) const;
  std::string Help(int width = 100) const;

  /// Every option and its present value, in the order they were added.
  std::string ToJson() const;
  /// Sets the fields that `json` names; `ignore_unknown` skips keys that are no option.
  ///
  /// Errors  INVALID_ARGUMENT naming the key and what is wrong with its value.
  absl::Status FromJson(const std::string& json, bool ignore_unknown = false);

 private:
  Option* Find(absl::string_view name) const;
  Option& Push(std::string name, Option::Field field, std::string help);
  absl::Status Unknown(absl::string_view flag) const;

  std::string program_;
  std::string summary_;
  std::string group_;
  std::vector<std::unique_ptr<Option>> options_;
  bool help_requested_ = false;
};

}  // namespace troupe::actors
