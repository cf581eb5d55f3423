#include "actors/options/option_parser.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "actors/options/internal/help.h"
#include "actors/options/nearest.h"
#include "actors/options/option_value.h"
#include "runtime/base/check.h"
#include "runtime/base/status.h"

namespace troupe::actors {

namespace {

using Json = nlohmann::ordered_json;
using List = std::vector<std::string>;

template <typename... Fs>
struct Overload : Fs... {
  using Fs::operator()...;
};
template <typename... Fs>
Overload(Fs...) -> Overload<Fs...>;

std::string Normalised(absl::string_view name) { return absl::StrReplaceAll(name, {{"-", "_"}}); }

bool IsFlag(absl::string_view word) { return absl::StartsWith(word, "--") && word.size() > 2; }

absl::Status CheckValue(const List& allowed, const std::string& value) {
  if (allowed.empty() || std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("\"", value, "\" is none of ", absl::StrJoin(allowed, ", "),
                                                 "; did you mean ", Nearest(value, allowed), "?"));
}

absl::Status CheckBounds(double value, const std::optional<double>& min, const std::optional<double>& above,
                         const std::optional<double>& max, const std::optional<double>& below) {
  const auto wrong = [&](const char* relation, double bound) {
    return absl::InvalidArgumentError(
        absl::StrCat(FormatNumber(value), " is not ", relation, " ", FormatNumber(bound)));
  };
  if (min && value < *min) return wrong("at least", *min);
  if (above && value <= *above) return wrong("above", *above);
  if (max && value > *max) return wrong("at most", *max);
  if (below && value >= *below) return wrong("below", *below);
  return absl::OkStatus();
}

std::string FormatField(const Option::Field& field) {
  return std::visit(Overload{[](const std::string* v) { return *v; }, [](const int64_t* v) { return absl::StrCat(*v); },
                             [](const double* v) { return FormatNumber(*v); },
                             [](const bool* v) { return std::string(*v ? "true" : "false"); },
                             [](const List* v) { return absl::StrJoin(*v, " "); }},
                    field);
}

const char* TypeName(const Option::Field& field) {
  constexpr const char* kNames[] = {"TEXT", "N", "X", "true|false", "TEXT..."};
  return kNames[field.index()];
}

/// What is common to the command line and JSON: a checked assignment.
struct Assign {
  const List& values;
  const std::optional<double>&min, &above, &max, &below;

  absl::Status operator()(std::string* field, std::string value) const {
    TROUPE_RETURN_IF_ERROR(CheckValue(values, value));
    *field = std::move(value);
    return absl::OkStatus();
  }
  template <typename Number>
  absl::Status Set(Number* field, Number value) const {
    TROUPE_RETURN_IF_ERROR(CheckBounds(static_cast<double>(value), min, above, max, below));
    *field = value;
    return absl::OkStatus();
  }
  absl::Status operator()(List* field, List value) const {
    for (const std::string& element : value) TROUPE_RETURN_IF_ERROR(CheckValue(values, element));
    *field = std::move(value);
    return absl::OkStatus();
  }
};

absl::Status SetFromJson(const Option::Field& field, const Assign& assign, const Json& value) {
  const auto wrong = [&](const char* wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat(value.dump(-1, ' ', false, Json::error_handler_t::replace), " is not ", wanted));
  };
  return std::visit(
      Overload{
          [&](std::string* v) { return value.is_string() ? assign(v, value.get<std::string>()) : wrong("a string"); },
          [&](int64_t* v) {
            return value.is_number_integer() ? assign.Set(v, value.get<int64_t>()) : wrong("a whole number");
          },
          [&](double* v) { return value.is_number() ? assign.Set(v, value.get<double>()) : wrong("a number"); },
          [&](bool* v) {
            if (!value.is_boolean()) return wrong("true or false");
            *v = value.get<bool>();
            return absl::OkStatus();
          },
          [&](List* v) {
            const bool strings = value.is_array() &&
                                 std::all_of(value.begin(), value.end(), [](const Json& e) { return e.is_string(); });
            return strings ? assign(v, value.get<List>()) : wrong("a list of strings");
          }},
      field);
}

}  // namespace

Option& Option::Alias(std::string name) {
  aliases_.push_back(std::move(name));
  return *this;
}
Option& Option::OneOf(std::vector<std::string> values) {
  values_ = std::move(values);
  return *this;
}
Option& Option::Min(double bound) {
  min_ = bound;
  return *this;
}
Option& Option::Above(double bound) {
  above_ = bound;
  return *this;
}
Option& Option::Max(double bound) {
  max_ = bound;
  return *this;
}
Option& Option::Below(double bound) {
  below_ = bound;
  return *this;
}
Option& Option::DefaultText(std::string text) {
  default_text_ = std::move(text);
  return *this;
}
Option& Option::Commas() {
  commas_ = true;
  return *this;
}
Option& Option::Required() {
  required_ = true;
  return *this;
}
Option& Option::Ignored() {
  ignored_ = true;
  return *this;
}

OptionParser::OptionParser(std::string program, std::string summary)
    : program_(std::move(program)), summary_(std::move(summary)) {}

OptionParser::~OptionParser() = default;

void OptionParser::Group(std::string title) { group_ = std::move(title); }

Option& OptionParser::Push(std::string name, Option::Field field, std::string help) {
  TROUPE_CHECK(Find(name) == nullptr) << "option " << name << " is described twice";
  auto option = std::make_unique<Option>();
  option->name_ = std::move(name);
  option->field_ = field;
  option->help_ = std::move(help);
  option->group_ = group_;
  option->default_text_ = FormatField(field);
  options_.push_back(std::move(option));
  return *options_.back();
}

Option& OptionParser::Add(std::string name, Option::Field field, std::string help) {
  return Push(std::move(name), field, std::move(help));
}

Option& OptionParser::AddPositional(std::string name, Option::Field field, std::string help) {
  Option& option = Push(std::move(name), field, std::move(help));
  option.positional_ = true;
  return option;
}

Option* OptionParser::Find(absl::string_view name) const {
  for (const auto& option : options_) {
    if (option->name_ == name) return option.get();
    for (const std::string& alias : option->aliases_) {
      if (alias == name) return option.get();
    }
  }
  return nullptr;
}

absl::Status OptionParser::Unknown(absl::string_view flag) const {
  List names = {"help"};
  for (const auto& option : options_) {
    if (option->positional_) continue;
    names.push_back(option->name_);
    names.insert(names.end(), option->aliases_.begin(), option->aliases_.end());
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown flag --", flag, "; did you mean --",
                                                 Nearest(Normalised(flag), names), "? (--help shows all)"));
}

absl::Status OptionParser::Parse(const std::vector<std::string>& arguments) {
  const auto end_of_flags = std::find(arguments.begin(), arguments.end(), "--");
  for (auto word = arguments.begin(); word != end_of_flags; ++word) {
    if (*word == "--help" || *word == "-h") help_requested_ = true;
  }
  if (help_requested_) return absl::OkStatus();

  List positionals;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word == "--") {
      positionals.insert(positionals.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!IsFlag(word)) {
      const bool dashed = word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9') && word[1] != '.';
      if (dashed) return Annotate(Unknown(word.substr(1)), "a flag has two dashes");
      positionals.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string written = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    Option* option = Find(Normalised(written));
    if (option == nullptr || option->positional_) return Unknown(written);
    option->given_ = true;

    // The words that are its value.
    List words;
    bool unused = false;
    const bool is_bool = std::holds_alternative<bool*>(option->field_);
    const bool is_list = std::holds_alternative<List*>(option->field_);
    if (equals != std::string::npos) {
      words.push_back(word.substr(equals + 1));
    } else if (is_list) {
      while (i + 1 < arguments.size() && !IsFlag(arguments[i + 1]) && arguments[i + 1] != "--") {
        words.push_back(arguments[++i]);
      }
    } else if (i + 1 < arguments.size() && !IsFlag(arguments[i + 1]) && arguments[i + 1] != "--" &&
               (!is_bool || IsBool(arguments[i + 1], &unused))) {
      words.push_back(arguments[++i]);
    } else if (is_bool) {
      words.push_back("true");
    }
    if (words.empty() && !is_list) {
      return absl::InvalidArgumentError(absl::StrCat("--", written, " needs a value: ", TypeName(option->field_)));
    }
    const Assign assign{option->values_, option->min_, option->above_, option->max_, option->below_};
    const absl::Status status = std::visit(
        Overload{[&](std::string* v) { return assign(v, words[0]); },
                 [&](int64_t* v) {
                   TROUPE_ASSIGN_OR_RETURN(const int64_t value, ParseWholeNumber(words[0]));
                   return assign.Set(v, value);
                 },
                 [&](double* v) {
                   TROUPE_ASSIGN_OR_RETURN(const double value, ParseNumber(words[0]));
                   return assign.Set(v, value);
                 },
                 [&](bool* v) {
                   if (IsBool(words[0], v)) return absl::OkStatus();
                   return absl::InvalidArgumentError(absl::StrCat("\"", words[0], "\" is neither true nor false"));
                 },
                 [&](List* v) {
                   List elements;
                   for (const std::string& w : words) {
                     if (!option->commas_) {
                       elements.push_back(w);
                       continue;
                     }
                     for (const absl::string_view part : absl::StrSplit(w, ',', absl::SkipEmpty())) {
                       elements.emplace_back(part);
                     }
                   }
                   return assign(v, std::move(elements));
                 }},
        option->field_);
    if (!status.ok()) return Annotate(status, absl::StrCat("--", written));
  }

  size_t next = 0;
  for (const auto& option : options_) {
    if (!option->positional_) continue;
    if (auto* const* list = std::get_if<List*>(&option->field_)) {
      (*list)->assign(positionals.begin() + static_cast<std::ptrdiff_t>(next), positionals.end());
      option->given_ = next < positionals.size();
      next = positionals.size();
    } else if (next < positionals.size()) {
      auto* const* text = std::get_if<std::string*>(&option->field_);
      TROUPE_CHECK(text != nullptr) << "positional " << option->name_ << " is a string or a list of strings";
      const absl::Status status = CheckValue(option->values_, positionals[next]);
      if (!status.ok()) return Annotate(status, option->name_);
      **text = positionals[next++];
      option->given_ = true;
    }
    if (option->required_ && !option->given_) {
      return absl::InvalidArgumentError(absl::StrCat(option->name_, " is missing (--help shows how)"));
    }
  }
  if (next < positionals.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", positionals[next], "\" belongs to no flag (--help shows all)"));
  }
  return absl::OkStatus();
}

absl::Status OptionParser::Parse(int argc, char** argv) { return Parse(List(argv + std::min(argc, 1), argv + argc)); }

void OptionParser::ParseOrExit(int argc, char** argv) {
  const absl::Status status = Parse(argc, argv);
  if (!status.ok()) {
    std::fprintf(stderr, "%s: %s\n", program_.c_str(), std::string(status.message()).c_str());
    std::exit(2);
  }
  if (help_requested_) {
    std::fputs(Help().c_str(), stdout);
    std::exit(0);
  }
}

bool OptionParser::given(absl::string_view name) const {
  const Option* option = Find(name);
  TROUPE_CHECK(option != nullptr) << "no option " << std::string(name);
  return option->given_;
}

std::string OptionParser::Help(int width) const {
  std::string usage = absl::StrCat("usage: ", program_, " [flags]");
  std::vector<internal::HelpEntry> entries;
  for (const auto& option : options_) {
    internal::HelpEntry entry;
    entry.group = option->group_;
    if (option->positional_) {
      const bool list = std::holds_alternative<List*>(option->field_);
      const std::string word = absl::StrCat(option->name_, list ? "..." : "");
      absl::StrAppend(&usage, " ", option->required_ ? word : absl::StrCat("[", word, "]"));
      entry.name = option->name_;
    } else {
      entry.name =
          absl::StrCat("--", option->name_, " ",
                       option->values_.empty() ? TypeName(option->field_) : absl::StrJoin(option->values_, "|"));
    }
    entry.text = option->help_;
    if (!option->aliases_.empty()) {
      absl::StrAppend(&entry.text, "; also --", absl::StrJoin(option->aliases_, ", --"));
    }
    if (!option->default_text_.empty()) absl::StrAppend(&entry.text, " (default: ", option->default_text_, ")");
    entries.push_back(std::move(entry));
  }
  entries.push_back({"", "--help", "shows this"});
  return absl::StrCat(program_, ": ", summary_, "\n\n", usage, "\n", internal::FormatHelp(entries, width));
}

std::string OptionParser::ToJson() const {
  Json json = Json::object();
  for (const auto& option : options_) {
    if (option->ignored_) continue;
    std::visit([&](const auto* value) { json[option->name_] = *value; }, option->field_);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

absl::Status OptionParser::FromJson(const std::string& json, bool ignore_unknown) {
  const Json parsed = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return absl::InvalidArgumentError("the arguments are not a JSON object");
  for (const auto& [key, value] : parsed.items()) {
    const Option* option = Find(key);
    if (option == nullptr) {
      if (ignore_unknown) continue;
      return Unknown(key);
    }
    if (option->ignored_) continue;
    const Assign assign{option->values_, option->min_, option->above_, option->max_, option->below_};
    const absl::Status status = SetFromJson(option->field_, assign, value);
    if (!status.ok()) return Annotate(status, key);
  }
  return absl::OkStatus();
}

}  // namespace troupe::actors
