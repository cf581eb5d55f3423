#include "runtime/mesh/microbatch_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>

namespace troupe::runtime {
namespace {

using ::testing::HasSubstr;

/// Writes down the order of additions instead of adding.
struct Term {
  std::string text;
  friend Term operator+(const Term& a, const Term& b) { return {"(" + a.text + "+" + b.text + ")"}; }
};

std::vector<Term> Terms(int count) {
  std::vector<Term> terms;
  for (int i = 0; i < count; ++i) terms.push_back({std::to_string(i)});
  return terms;
}

/// Leaves whose f32 sum depends on the order.
std::vector<float> Leaves(int64_t count) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::vector<float> leaves;
  for (int64_t i = 0; i < count; ++i) {
    const auto raw = static_cast<float>(static_cast<int32_t>(random())) / 3.0f;
    leaves.push_back(std::ldexp(raw, static_cast<int>(random() % 40) - 60));
  }
  return leaves;
}

/// What the ranks of a mesh do, step by step.
template <typename T>
T SumAsTheMeshDoes(const MicroBatchPlan& plan, MicroBatchPlan::Shape shape, const std::vector<T>& leaves) {
  T total{};
  for (int64_t group = 0; group < plan.Groups(); ++group) {
    std::vector<T> of_replica;
    for (int d = 0; d < shape.dp; ++d) {
      std::vector<T> of_step;
      for (int64_t inner = 0; inner < plan.StepsPerDpReduce(); ++inner) {
        std::vector<T> of_shard;
        for (int f = 0; f < shape.fsdp; ++f) {
          const int64_t m = plan.MicroBatch({d, f, group * plan.StepsPerDpReduce() + inner});
          of_shard.push_back(leaves[static_cast<size_t>(m)]);
        }
        of_step.push_back(TreeSum(of_shard));
      }
      of_replica.push_back(TreeSum(of_step));
    }
    const T sum = TreeSum(of_replica);
    total = group == 0 ? sum : total + sum;
  }
  return total;
}

TEST(MicroBatchTreeTest, TreeSumAddsAlignedPairsFirstAndFoldsTheSmallestBlocksFirst) {
  EXPECT_EQ(TreeSum(Terms(1)).text, "0");
  EXPECT_EQ(TreeSum(Terms(2)).text, "(0+1)");
  EXPECT_EQ(TreeSum(Terms(3)).text, "((0+1)+2)");
  EXPECT_EQ(TreeSum(Terms(4)).text, "((0+1)+(2+3))");
  EXPECT_EQ(TreeSum(Terms(5)).text, "(((0+1)+(2+3))+4)");
  EXPECT_EQ(TreeSum(Terms(6)).text, "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(TreeSum(Terms(7)).text, "(((0+1)+(2+3))+((4+5)+6))");
  EXPECT_EQ(TreeSum(Terms(8)).text, "(((0+1)+(2+3))+((4+5)+(6+7)))");
}

TEST(MicroBatchTreeTest, MicroBatchTreeSumAddsBlocksInOrder) {
  EXPECT_EQ(MicroBatchTreeSum(Terms(5)).text, "((((0+1)+2)+3)+4)");
  EXPECT_EQ(MicroBatchTreeSum(Terms(6)).text, "(((0+1)+(2+3))+(4+5))");
  EXPECT_EQ(MicroBatchTreeSum(Terms(8)).text, TreeSum(Terms(8)).text);
}

TEST(MicroBatchTreeTest, EveryPowerOfTwoMeshAddsAlongTheSameTree) {
  for (int64_t micro_batches = 1; micro_batches <= 96; ++micro_batches) {
    const std::string expected = MicroBatchTreeSum(Terms(static_cast<int>(micro_batches))).text;
    int meshes = 0;
    for (const int dp : {1, 2, 4, 8}) {
      for (const int fsdp : {1, 2, 4, 8}) {
        if (micro_batches % (dp * fsdp) != 0) continue;
        const auto plan = MicroBatchPlan::Create(micro_batches, {dp, fsdp});
        ASSERT_TRUE(plan.ok()) << plan.status();
        EXPECT_TRUE(plan->SameBits());
        ASSERT_EQ(SumAsTheMeshDoes(*plan, {dp, fsdp}, Terms(static_cast<int>(micro_batches))).text, expected)
            << micro_batches << " micro-batches, " << dp << "x" << fsdp;
        ++meshes;
      }
    }
    ASSERT_GT(meshes, 0);
  }
}

TEST(MicroBatchTreeTest, EveryPowerOfTwoMeshGivesTheSameBitsInF32) {
  bool order_matters = false;
  for (const int64_t micro_batches : {8, 16, 24, 40, 48, 56, 64, 80, 96, 112}) {
    const std::vector<float> leaves = Leaves(micro_batches);
    const float expected = MicroBatchTreeSum(leaves);
    float in_order = 0;
    for (const float leaf : leaves) in_order += leaf;
    order_matters |= std::memcmp(&in_order, &expected, sizeof(float)) != 0;
    for (const int dp : {1, 2, 4, 8}) {
      for (const int fsdp : {1, 2, 4, 8}) {
        if (micro_batches % (dp * fsdp) != 0) continue;
        const auto plan = MicroBatchPlan::Create(micro_batches, {dp, fsdp});
        ASSERT_TRUE(plan.ok()) << plan.status();
        const float sum = SumAsTheMeshDoes(*plan, {dp, fsdp}, leaves);
        EXPECT_EQ(std::memcmp(&sum, &expected, sizeof(float)), 0)
            << micro_batches << " micro-batches, " << dp << "x" << fsdp << ": " << sum << " vs " << expected;
      }
    }
  }
  EXPECT_TRUE(order_matters) << "the leaves are too tame to show an order";
}

TEST(MicroBatchTreeTest, EveryMicroBatchIsDoneOnceOnEveryMesh) {
  for (int dp = 1; dp <= 6; ++dp) {
    for (int fsdp = 1; fsdp <= 6; ++fsdp) {
      for (int64_t steps = 1; steps <= 12; ++steps) {
        const auto plan = MicroBatchPlan::Create(steps * dp * fsdp, {dp, fsdp});
        ASSERT_TRUE(plan.ok()) << plan.status();
        ASSERT_EQ(plan->Steps(), steps);
        std::vector<int> done(static_cast<size_t>(plan->micro_batches()), 0);
        for (int d = 0; d < dp; ++d) {
          for (int f = 0; f < fsdp; ++f) {
            for (int64_t step = 0; step < steps; ++step) {
              const int64_t m = plan->MicroBatch({d, f, step});
              ++done[static_cast<size_t>(m)];
              EXPECT_EQ(plan->PlaceOf(m), (MicroBatchPlan::Place{d, f, step}));
            }
          }
        }
        EXPECT_EQ(done, std::vector<int>(done.size(), 1));
      }
    }
  }
}

TEST(MicroBatchTreeTest, ThreeByOneMakesNoPromiseOfTheSameBits) {
  EXPECT_FALSE(MicroBatchPlan::Create(6, {3, 1})->SameBits());
}

TEST(MicroBatchTreeTest, ErrorsSayWhatToChange) {
  const std::string message(MicroBatchPlan::Create(6, {2, 2}).status().message());
  EXPECT_THAT(message, HasSubstr("6 micro-batches"));
  EXPECT_THAT(message, HasSubstr("4 ranks (dp 2 x fsdp 2)"));
  EXPECT_THAT(message, HasSubstr("gradient_accumulation_steps"));
  EXPECT_FALSE(MicroBatchPlan::Create(0, {1, 1}).ok());
}

}  // namespace
}  // namespace troupe::runtime
