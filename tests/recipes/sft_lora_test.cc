// Runs the recipe as a user does, and compares the hash of the weights after every step.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace {

namespace fs = std::filesystem;

const std::string kLauncher = TROUPE_BINARY_DIR "/tools/launcher";
const std::string kRecipe = TROUPE_BINARY_DIR "/recipes/sft_lora";
const std::string kModel = TROUPE_SOURCE_DIR "/recipes/models/troupe-tiny";
const std::string kData = TROUPE_SOURCE_DIR "/recipes/data/arithmetic/train.jsonl";

class SftLoraTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string path = (fs::temp_directory_path() / "troupe-sft-XXXXXX").string();
    ASSERT_NE(mkdtemp(path.data()), nullptr);
    dir_ = path;
  }
  void TearDown() override { fs::remove_all(dir_); }

  /// Runs a shell command; its exit status. What it printed is in output_.
  int Run(const std::string& command) {
    const std::string log = (dir_ / "output.txt").string();
    const int status = std::system((command + " > " + log + " 2>&1 < /dev/null").c_str());
    std::ifstream file(log);
    output_.assign(std::istreambuf_iterator<char>(file), {});
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  std::string Flags(const std::string& name) {
    return " --model " + kModel + " --dataset " + kData + "#40 --max_steps 3 --gradient_accumulation_steps 0 --learning_rate 1e-3" +
           " --output_dir " + (dir_ / name).string() + " --add_version false ";
  }

  std::vector<std::string> Hashes(const std::string& name) {
    std::vector<std::string> hashes;
    std::ifstream file(dir_ / name / "logging.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.contains("state_hash")) hashes.push_back(json["state_hash"].get<std::string>() + " " + json["loss"].dump());
    }
    return hashes;
  }

  fs::path dir_;
  std::string output_;
};

TEST_F(SftLoraTest, TheSameBitsOnEveryMeshInOneProcessOrMany) {
  ASSERT_EQ(Run(kRecipe + " --mesh 1x1" + Flags("base")), 0) << output_;
  const std::vector<std::string> base = Hashes("base");
  ASSERT_EQ(base.size(), 3u) << output_;
  EXPECT_NE(base[0], base[2]);
  const std::pair<const char*, std::string> runs[] = {
      {"local22", kRecipe + " --mesh 2x2"},
      {"threads", kRecipe + " --mesh 1x2 --num_threads 2"},
      {"fibers", kRecipe + " --mesh 2x2 --deterministic true"},
      {"launched22", kLauncher + " --mesh 2x2 " + kRecipe},
      {"launched21", kLauncher + " --mesh 2x1 " + kRecipe},
      {"launched41", kLauncher + " --mesh 4x1 " + kRecipe},
      {"launched14", kLauncher + " --mesh 1x4 " + kRecipe},
  };
  for (const auto& [name, command] : runs) {
    ASSERT_EQ(Run(command + Flags(name)), 0) << command << "\n" << output_;
    EXPECT_EQ(Hashes(name), base) << command;
  }
}

TEST_F(SftLoraTest, WritesAnAdapterInPeftsLayoutAndStartsFromIt) {
  ASSERT_EQ(Run(kRecipe + Flags("first")), 0) << output_;
  const fs::path checkpoint = dir_ / "first" / "checkpoint-3";
  EXPECT_TRUE(fs::exists(checkpoint / "adapter_model.safetensors"));
  EXPECT_TRUE(fs::exists(checkpoint / "adapter_config.json"));
  EXPECT_TRUE(fs::exists(dir_ / "first" / "args.json"));
  EXPECT_TRUE(fs::exists(dir_ / "first" / "loss_curve.svg"));
  ASSERT_EQ(Run(kRecipe + Flags("second") + " --adapters " + checkpoint.string()), 0) << output_;
  EXPECT_NE(Hashes("second"), Hashes("first"));
}

TEST_F(SftLoraTest, WrongInputEndsWithAnErrorThatNamesIt) {
  EXPECT_EQ(Run(kRecipe + " --lora_rnak 4"), 2);
  EXPECT_NE(output_.find("lora_rank"), std::string::npos) << output_;

  EXPECT_EQ(Run(kRecipe + Flags("x") + " --model /nowhere"), 1);
  EXPECT_NE(output_.find("/nowhere"), std::string::npos) << output_;

  std::ofstream(dir_ / "empty.jsonl").close();
  EXPECT_EQ(Run(kRecipe + Flags("x") + " --dataset " + (dir_ / "empty.jsonl").string()), 1);
  EXPECT_NE(output_.find("empty.jsonl"), std::string::npos) << output_;

  std::ofstream(dir_ / "bad.jsonl") << "{\"query\": \"a\", \"response\": \"b\"}\n{broken\n";
  EXPECT_EQ(Run(kRecipe + Flags("x") + " --strict true --dataset " + (dir_ / "bad.jsonl").string()), 1);
  EXPECT_NE(output_.find("bad.jsonl:2"), std::string::npos) << output_;

  fs::create_directory(dir_ / "cut");
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer_config.json"}) fs::copy_file(fs::path(kModel) / name, dir_ / "cut" / name);
  std::ifstream whole(fs::path(kModel) / "model.safetensors", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(whole), {});
  std::ofstream(dir_ / "cut" / "model.safetensors", std::ios::binary) << bytes.substr(0, bytes.size() / 2);
  EXPECT_EQ(Run(kRecipe + Flags("x") + " --model " + (dir_ / "cut").string()), 1);
  EXPECT_NE(output_.find("model.safetensors"), std::string::npos) << output_;
}

}  // namespace
