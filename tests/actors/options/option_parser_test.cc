#include "actors/options/option_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_split.h"
#include "actors/options/option_value.h"

namespace troupe::actors {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Options {
  std::string model = "tiny";
  int64_t steps = 10;
  double rate = 1e-4;
  bool shuffle = true;
  std::string type = "lora";
  std::vector<std::string> modules = {"all-linear"};
  std::vector<std::string> files;
  std::string input;
  std::vector<std::string> rest;
};

class OptionParserTest : public ::testing::Test {
 protected:
  OptionParserTest() {
    parser_.Group("model");
    parser_.Add("model", &options_.model, "the model");
    parser_.Add("tuner_type", &options_.type, "what is trained").OneOf({"lora", "full"}).Alias("train_type");
    parser_.Group("training");
    parser_.Add("max_steps", &options_.steps, "steps").Min(-1);
    parser_.Add("learning_rate", &options_.rate, "rate").Above(0).Below(1).DefaultText("a good one");
    parser_.Add("shuffle", &options_.shuffle, "shuffle the rows");
    parser_.Add("target_modules", &options_.modules, "modules").Commas();
    parser_.Add("dataset", &options_.files, "files");
    parser_.AddPositional("input", &options_.input, "a file");
    parser_.AddPositional("rest", &options_.rest, "more files");
  }

  absl::Status Parse(const std::vector<std::string>& arguments) { return parser_.Parse(arguments); }
  std::string ErrorOf(const std::vector<std::string>& arguments) {
    const absl::Status status = Parse(arguments);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  Options options_;
  OptionParser parser_{"recipe", "does something"};
};

TEST_F(OptionParserTest, NoFlagsMeanTheDefaults) {
  ASSERT_TRUE(Parse({}).ok());
  EXPECT_EQ(options_.steps, 10);
  EXPECT_THAT(options_.modules, ElementsAre("all-linear"));
  EXPECT_FALSE(parser_.given("max_steps"));
}

TEST_F(OptionParserTest, ValuesFollowASpaceOrAnEqualsSign) {
  ASSERT_TRUE(Parse({"--model", "a b", "--max_steps=7", "--learning_rate", "2e-5", "--tuner_type=full"}).ok());
  EXPECT_EQ(options_.model, "a b");
  EXPECT_EQ(options_.steps, 7);
  EXPECT_EQ(options_.rate, 2e-5);
  EXPECT_EQ(options_.type, "full");
  EXPECT_TRUE(parser_.given("max_steps"));
}

TEST_F(OptionParserTest, NegativeNumbersAreValues) {
  ASSERT_TRUE(Parse({"--max_steps", "-1"}).ok());
  EXPECT_EQ(options_.steps, -1);
}

TEST_F(OptionParserTest, AnEmptyValueIsAValue) {
  ASSERT_TRUE(Parse({"--model="}).ok());
  EXPECT_EQ(options_.model, "");
}

TEST_F(OptionParserTest, BoolsAreTrueFalseOrBare) {
  ASSERT_TRUE(Parse({"--shuffle", "false"}).ok());
  EXPECT_FALSE(options_.shuffle);
  ASSERT_TRUE(Parse({"--shuffle"}).ok());
  EXPECT_TRUE(options_.shuffle);
  ASSERT_TRUE(Parse({"--shuffle=False"}).ok());
  EXPECT_FALSE(options_.shuffle);
  ASSERT_TRUE(Parse({"--shuffle", "file.txt"}).ok());
  EXPECT_TRUE(options_.shuffle);
  EXPECT_EQ(options_.input, "file.txt");
  EXPECT_THAT(ErrorOf({"--shuffle=maybe"}), HasSubstr("--shuffle: \"maybe\" is neither true nor false"));
}

TEST_F(OptionParserTest, ListsTakeTheWordsUpToTheNextFlagAndCommasIfTheySay) {
  ASSERT_TRUE(Parse({"--dataset", "a,1.jsonl", "b.jsonl", "--target_modules", "q_proj,k_proj", "v_proj"}).ok());
  EXPECT_THAT(options_.files, ElementsAre("a,1.jsonl", "b.jsonl"));
  EXPECT_THAT(options_.modules, ElementsAre("q_proj", "k_proj", "v_proj"));
  ASSERT_TRUE(Parse({"--target_modules"}).ok());
  EXPECT_THAT(options_.modules, IsEmpty());
}

TEST_F(OptionParserTest, ALaterFlagWinsAndDashesAreUnderscores) {
  ASSERT_TRUE(Parse({"--max_steps", "3", "--max-steps", "4", "--dataset", "a", "--dataset", "b"}).ok());
  EXPECT_EQ(options_.steps, 4);
  EXPECT_THAT(options_.files, ElementsAre("b"));
}

TEST_F(OptionParserTest, AnAliasIsTheSameFlag) {
  ASSERT_TRUE(Parse({"--train_type", "full"}).ok());
  EXPECT_EQ(options_.type, "full");
  EXPECT_TRUE(parser_.given("tuner_type"));
}

TEST_F(OptionParserTest, PositionalsFillInOrderAndMayFollowTwoDashes) {
  ASSERT_TRUE(Parse({"in", "x", "--max_steps", "1", "--", "--y"}).ok());
  EXPECT_EQ(options_.input, "in");
  EXPECT_THAT(options_.rest, ElementsAre("x", "--y"));
}

TEST_F(OptionParserTest, AnUnknownFlagNamesTheNearest) {
  EXPECT_EQ(ErrorOf({"--max_step", "3"}), "unknown flag --max_step; did you mean --max_steps? (--help shows all)");
  EXPECT_THAT(ErrorOf({"--lerning-rate=3"}), HasSubstr("did you mean --learning_rate?"));
  EXPECT_THAT(ErrorOf({"--trian_type", "lora"}), HasSubstr("did you mean --train_type?"));
  EXPECT_THAT(ErrorOf({"--input", "x"}), HasSubstr("unknown flag --input"));
  EXPECT_THAT(ErrorOf({"-model", "x"}),
              HasSubstr("a flag has two dashes: unknown flag --model; did you mean --model?"));
}

TEST_F(OptionParserTest, AnUnknownValueNamesTheNearest) {
  EXPECT_EQ(ErrorOf({"--tuner_type", "lorra"}), "--tuner_type: \"lorra\" is none of lora, full; did you mean lora?");
}

TEST_F(OptionParserTest, NumbersAreCheckedForFormAndBounds) {
  EXPECT_EQ(ErrorOf({"--max_steps", "ten"}), "--max_steps: \"ten\" is not a whole number");
  EXPECT_EQ(ErrorOf({"--max_steps", "1.5"}), "--max_steps: \"1.5\" is not a whole number");
  EXPECT_EQ(ErrorOf({"--max_steps", "99999999999999999999"}),
            "--max_steps: \"99999999999999999999\" is not a whole number");
  EXPECT_EQ(ErrorOf({"--max_steps", "-2"}), "--max_steps: -2 is not at least -1");
  EXPECT_EQ(ErrorOf({"--learning_rate", "nan"}), "--learning_rate: \"nan\" is not a number");
  EXPECT_EQ(ErrorOf({"--learning_rate", "0"}), "--learning_rate: 0 is not above 0");
  EXPECT_EQ(ErrorOf({"--learning_rate", "1"}), "--learning_rate: 1 is not below 1");
}

TEST_F(OptionParserTest, AMissingValueIsAnError) {
  EXPECT_EQ(ErrorOf({"--max_steps"}), "--max_steps needs a value: N");
  EXPECT_EQ(ErrorOf({"--model", "--shuffle"}), "--model needs a value: TEXT");
}

TEST(OptionParserPositionalsTest, WordsThatBelongNowhereAndMissingOnesAreErrors) {
  std::string input;
  OptionParser parser("tool", "does something");
  parser.AddPositional("input", &input, "a file").Required();
  EXPECT_THAT(std::string(parser.Parse(std::vector<std::string>{}).message()), HasSubstr("input is missing"));
  EXPECT_THAT(std::string(parser.Parse({"a", "b"}).message()), HasSubstr("\"b\" belongs to no flag"));
}

TEST_F(OptionParserTest, HelpShowsGroupsNamesDefaultsAndAliasesWithinTheWidth) {
  ASSERT_TRUE(Parse({"--max_steps", "--help"}).ok());
  EXPECT_TRUE(parser_.help_requested());
  const std::string help = parser_.Help(80);
  EXPECT_THAT(help,
              AllOf(HasSubstr("recipe: does something"), HasSubstr("usage: recipe [flags] [input] [rest...]"),
                    HasSubstr("\nmodel\n"), HasSubstr("\ntraining\n"), HasSubstr("--tuner_type lora|full"),
                    HasSubstr("also --train_type"), HasSubstr("(default: 10)"), HasSubstr("(default: a good one)"),
                    HasSubstr("(default: true)"), HasSubstr("(default: all-linear)")));
  for (const absl::string_view line : absl::StrSplit(help, '\n')) EXPECT_LE(line.size(), 80u) << line;
}

TEST_F(OptionParserTest, JsonHoldsEveryOptionAndReadsBack) {
  ASSERT_TRUE(
      Parse({"--max_steps", "3", "--learning_rate", "0.1", "--dataset", "a", "b\"c", "--train_type", "full"}).ok());
  const std::string json = parser_.ToJson();
  EXPECT_THAT(json, HasSubstr("\"learning_rate\": 0.1"));
  options_ = Options();
  ASSERT_TRUE(parser_.FromJson(json).ok());
  EXPECT_EQ(options_.steps, 3);
  EXPECT_EQ(options_.rate, 0.1);
  EXPECT_EQ(options_.type, "full");
  EXPECT_THAT(options_.files, ElementsAre("a", "b\"c"));
  EXPECT_EQ(parser_.ToJson(), json);
}

TEST_F(OptionParserTest, JsonIsCheckedAsFlagsAre) {
  const auto error = [&](const std::string& json) { return std::string(parser_.FromJson(json).message()); };
  EXPECT_THAT(error("{\"max_step\": 3}"), HasSubstr("did you mean --max_steps?"));
  EXPECT_THAT(error("{\"max_steps\": \"3\"}"), HasSubstr("max_steps: \"3\" is not a whole number"));
  EXPECT_THAT(error("{\"max_steps\": -5}"), HasSubstr("-5 is not at least -1"));
  EXPECT_THAT(error("{\"tuner_type\": \"x\"}"), HasSubstr("is none of lora, full"));
  EXPECT_THAT(error("{\"shuffle\": 1}"), HasSubstr("is not true or false"));
  EXPECT_THAT(error("{\"dataset\": [1]}"), HasSubstr("is not a list of strings"));
  EXPECT_THAT(error("[1]"), HasSubstr("not a JSON object"));
  EXPECT_THAT(error("{"), HasSubstr("not a JSON object"));
  EXPECT_TRUE(parser_.FromJson("{\"later\": 3}", /*ignore_unknown=*/true).ok());
}

TEST(OptionValueTest, NumbersReadBackAsTheyWere) {
  for (const double value : {0.0, 1.0, 0.1, 1e-4, 1.0 / 3, 1e300, -2.5, 123456789.125}) {
    EXPECT_EQ(*ParseNumber(FormatNumber(value)), value) << FormatNumber(value);
  }
}

}  // namespace
}  // namespace troupe::actors
