#include "actors/options/sft_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actors/options/option_parser.h"

namespace troupe::actors {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::Status Parse(const std::vector<std::string>& arguments, SftOptions* options, int data_world_size = 1) {
  OptionParser parser("sft_lora", "fine-tunes a language model");
  DescribeSftOptions(&parser, options);
  const absl::Status status = parser.Parse(arguments);
  return status.ok() ? ResolveSftOptions(options, data_world_size) : status;
}

std::string ErrorOf(const std::vector<std::string>& arguments) {
  SftOptions options;
  return std::string(Parse(arguments, &options).message());
}

TEST(SftOptionsTest, TheDefaultsAreThoseOfMsSwift) {
  SftOptions options;
  ASSERT_TRUE(Parse({}, &options).ok());
  EXPECT_EQ(options.tuner_type, "lora");
  EXPECT_EQ(options.lora_rank, 8);
  EXPECT_EQ(options.lora_alpha, 32);
  EXPECT_EQ(options.lora_dropout, 0.05);
  EXPECT_THAT(options.target_modules, ElementsAre("all-linear"));
  EXPECT_EQ(options.learning_rate, 1e-4);
  EXPECT_EQ(options.weight_decay, 0.1);
  EXPECT_EQ(options.adam_beta2, 0.95);
  EXPECT_EQ(options.lr_scheduler_type, "cosine");
  EXPECT_EQ(options.num_train_epochs, 3);
  EXPECT_EQ(options.max_steps, -1);
  EXPECT_EQ(options.seed, 42);
  EXPECT_EQ(options.truncation_strategy, "delete");
  EXPECT_EQ(options.save_steps, 500);
  EXPECT_EQ(options.eval_steps, 500);
  EXPECT_EQ(options.output_dir, "output/troupe-tiny");
}

TEST(SftOptionsTest, FullTrainingHasALowerRate) {
  SftOptions options;
  ASSERT_TRUE(Parse({"--train_type", "full", "--model", "/models/Qwen2-0.5B/"}, &options).ok());
  EXPECT_EQ(options.learning_rate, 1e-5);
  EXPECT_EQ(options.output_dir, "output/Qwen2-0.5B");
}

TEST(SftOptionsTest, TheDefaultGlobalBatchIsSixteenOnEveryMesh) {
  for (const int batch : {1, 2, 4, 8, 16}) {
    for (int world = 1; world * batch <= 16; world *= 2) {
      SftOptions options;
      options.per_device_train_batch_size = batch;
      ASSERT_TRUE(ResolveSftOptions(&options, world).ok());
      EXPECT_EQ(GlobalBatchSize(options, world), 16) << batch << " a device, " << world << " ranks";
    }
  }
  SftOptions large;
  large.per_device_train_batch_size = 32;
  ASSERT_TRUE(ResolveSftOptions(&large, 4).ok());
  EXPECT_EQ(large.gradient_accumulation_steps, 1);
}

TEST(SftOptionsTest, ResolvingTwiceChangesNothing) {
  SftOptions options;
  options.lr_scheduler_type = "cosine_with_min_lr";
  options.min_lr_rate = 0.1;
  ASSERT_TRUE(ResolveSftOptions(&options, 4).ok());
  const double min_lr = options.min_lr;
  EXPECT_DOUBLE_EQ(min_lr, 1e-5);
  ASSERT_TRUE(ResolveSftOptions(&options, 4).ok());
  EXPECT_EQ(options.min_lr, min_lr);
  EXPECT_EQ(options.gradient_accumulation_steps, 4);
}

TEST(SftOptionsTest, FlagsThatContradictEachOtherAreErrors) {
  EXPECT_THAT(ErrorOf({"--tuner_type", "full", "--adapters", "a"}), HasSubstr("tools/export"));
  EXPECT_THAT(ErrorOf({"--adapters", "a", "b"}), HasSubstr("2 are given"));
  EXPECT_THAT(ErrorOf({"--val_dataset", "v", "--split_dataset_ratio", "0.1"}),
              AllOf(HasSubstr("--val_dataset v"), HasSubstr("--split_dataset_ratio 0.1")));
  EXPECT_THAT(ErrorOf({"--min_lr", "1e-5"}), HasSubstr("belong to --lr_scheduler_type cosine_with_min_lr, not cosine"));
  EXPECT_THAT(ErrorOf({"--lr_scheduler_type", "cosine_with_min_lr"}), HasSubstr("needs --min_lr"));
  EXPECT_THAT(ErrorOf({"--lr_scheduler_type", "cosine_with_min_lr", "--min_lr", "1"}), HasSubstr("is above"));
  EXPECT_THAT(ErrorOf({"--lr_scheduler_type", "cosine_with_min_lr", "--min_lr", "1e-6", "--min_lr_rate", "0.5"}),
              HasSubstr("disagree"));
  EXPECT_THAT(ErrorOf({"--learning_rate", "0"}), HasSubstr("--learning_rate: 0 is not above 0"));
  EXPECT_THAT(ErrorOf({"--target_modules"}), HasSubstr("--target_modules is empty"));
}

TEST(SftOptionsTest, EveryFlagOfTheRecipeIsThere) {
  SftOptions options;
  OptionParser parser("sft_lora", "fine-tunes a language model");
  DescribeSftOptions(&parser, &options);
  const std::string help = parser.Help();
  for (const char* flag : {"model",
                           "dataset",
                           "val_dataset",
                           "split_dataset_ratio",
                           "output_dir",
                           "add_version",
                           "num_train_epochs",
                           "max_steps",
                           "tuner_type",
                           "train_type",
                           "lora_rank",
                           "lora_alpha",
                           "lora_dropout",
                           "use_rslora",
                           "target_modules",
                           "adapters",
                           "per_device_train_batch_size",
                           "gradient_accumulation_steps",
                           "learning_rate",
                           "lr_scheduler_type",
                           "warmup_ratio",
                           "weight_decay",
                           "adam_beta1",
                           "adam_beta2",
                           "max_grad_norm",
                           "max_length",
                           "truncation_strategy",
                           "dataset_shuffle",
                           "train_dataloader_shuffle",
                           "seed",
                           "logging_steps",
                           "save_steps",
                           "save_total_limit",
                           "eval_steps",
                           "strict",
                           "torch_dtype",
                           "gradient_checkpointing",
                           "mesh",
                           "deterministic",
                           "num_threads"}) {
    EXPECT_THAT(help, HasSubstr(std::string("--") + flag));
  }
}

TEST(SftOptionsTest, ArgsJsonReadsBackAndDoesNotHoldLocal) {
  SftOptions options;
  OptionParser parser("sft_lora", "fine-tunes a language model");
  DescribeSftOptions(&parser, &options);
  ASSERT_TRUE(parser.Parse({"--local", "--mesh", "2x2", "--learning_rate", "3e-4"}).ok());
  EXPECT_TRUE(options.local);
  ASSERT_TRUE(ResolveSftOptions(&options, 4).ok());
  const std::string json = parser.ToJson();
  EXPECT_EQ(json.find("\"local\""), std::string::npos);
  SftOptions again;
  OptionParser second("sft_lora", "fine-tunes a language model");
  DescribeSftOptions(&second, &again);
  ASSERT_TRUE(second.FromJson(json).ok());
  EXPECT_EQ(second.ToJson(), json);
  EXPECT_EQ(again.learning_rate, 3e-4);
}

}  // namespace
}  // namespace troupe::actors
