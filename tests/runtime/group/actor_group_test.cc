#include "runtime/group/actor_group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "runtime/collective/collective.h"
#include "runtime/job/job.h"
#include "runtime/msg/error_chain.h"

namespace troupe::runtime {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr absl::Duration kGenerous = absl::Minutes(2);

class Member {
 public:
  Member(ActorContext& context, int base) : context_(&context), base_(base) {}

  std::vector<int> Identity(const std::vector<int>& rows) { return rows; }
  std::vector<int> Twice(const std::vector<int>& rows, int factor, const std::vector<int>& offsets) {
    std::vector<int> result;
    for (size_t i = 0; i < rows.size(); ++i) {
      for (int copy = 0; copy < 2; ++copy) result.push_back(rows[i] * factor + offsets[i]);
    }
    return result;
  }
  int Rank() { return context_->group()->rank; }
  std::string Where() {
    return absl::StrCat(context_->name(), " ", context_->group()->mesh.ToString(), " ", context_->group()->rank);
  }
  double Rows(const std::vector<int>& rows) { return static_cast<double>(rows.size()); }
  std::vector<double> Sums(const std::vector<int>& rows) {
    return {static_cast<double>(rows.size()), static_cast<double>(std::accumulate(rows.begin(), rows.end(), 0))};
  }
  absl::Status FailOn(int rank) {
    if (rank == Rank()) return absl::DataLossError("bad shard");
    return absl::OkStatus();
  }
  /// A sum over one dimension of the mesh, in which all members must take part.
  absl::StatusOr<double> AllReduce(const std::string& dim, double value) {
    const GroupMembership& group = *context_->group();
    CollectiveOptions options;
    options.timeout = kGenerous;
    Collective collective(group.channel.get(), group.mesh.slice(dim, group.rank), options);
    const absl::Status status = collective.AllReduce(absl::MakeSpan(&value, 1));
    if (!status.ok()) return status;
    return value + base_;
  }
  absl::StatusOr<double> AllReduceRanks(const std::string& dim) { return AllReduce(dim, Rank()); }
  void Rejoin() { context_->group()->channel->Rejoin(); }
  /// As AllReduceRanks, but rank 1 does not come.
  absl::StatusOr<double> Lonely() {
    if (Rank() == 1) return absl::DataLossError("bad shard");
    return AllReduceRanks("dp");
  }

 private:
  ActorContext* context_;
  int base_;
};
TROUPE_ACTOR(Member, &Member::Identity, &Member::Twice, &Member::Rank, &Member::Where, &Member::Rows, &Member::Sums,
             &Member::FailOn, &Member::AllReduce, &Member::AllReduceRanks, &Member::Rejoin, &Member::Lonely);

/// Its constructor fails on one rank while the others wait for it.
class Brittle {
 public:
  static absl::StatusOr<std::unique_ptr<Brittle>> Create(ActorContext& context, int bad_rank) {
    const GroupMembership& group = *context.group();
    if (group.rank == bad_rank) return absl::NotFoundError("no weights");
    CollectiveOptions options;
    options.timeout = kGenerous;
    const absl::Status met = Collective(group.channel.get(), options).Barrier();
    if (!met.ok()) return met;
    return std::make_unique<Brittle>();
  }
  int Ping() { return 1; }
};
TROUPE_ACTOR(Brittle, &Brittle::Ping);

class ActorGroupTest : public ::testing::TestWithParam<bool> {
 protected:
  std::unique_ptr<Job> StartJob(int workers) {
    JobOptions options;
    options.num_workers = workers;
    options.deterministic = GetParam();
    options.default_timeout = kGenerous;
    options.watch_interrupts = false;
    auto job = Job::Start(options);
    TROUPE_CHECK(job.ok()) << job.status();
    return *std::move(job);
  }
  ActorGroup<Member> SpawnMembers(Job& job, const std::string& mesh) {
    auto group = ActorGroup<Member>::Spawn(job, *DeviceMesh::Parse(mesh), {.name = "member"}, 0);
    TROUPE_CHECK(group.ok()) << group.status();
    return *group;
  }
};
INSTANTIATE_TEST_SUITE_P(Both, ActorGroupTest, ::testing::Bool(),
                         [](const auto& param) { return param.param ? "Fibers" : "Threads"; });

/// Every mesh of dp x fsdp x tp with at most 8 ranks.
std::vector<std::string> Meshes() {
  std::vector<std::string> meshes;
  for (int dp = 1; dp <= 8; ++dp) {
    for (int fsdp = 1; dp * fsdp <= 8; ++fsdp) {
      for (int tp = 1; dp * fsdp * tp <= 8; ++tp) meshes.push_back(absl::StrCat("dp=", dp, ",fsdp=", fsdp, ",tp=", tp));
    }
  }
  return meshes;
}

TEST_P(ActorGroupTest, DispatchThenCollectIsTheIdentityOnRowsForEveryMesh) {
  const auto job = StartJob(8);
  for (const std::string& text : Meshes()) {
    const DeviceMesh mesh = *DeviceMesh::Parse(text);
    auto group = ActorGroup<Member>::Spawn(*job, mesh, {}, 0);
    ASSERT_TRUE(group.ok()) << group.status();
    for (const int rows : {0, 1, 2, 7, 8, 13}) {
      std::vector<int> batch(static_cast<size_t>(rows));
      std::iota(batch.begin(), batch.end(), 100);
      const auto round_robin = dispatch::Fn([&](int count, int rank) {
        std::vector<int> mine;
        for (int row = count - 1; row >= 0; --row) {
          if (row % mesh.size() == rank) mine.push_back(row);
        }
        return mine;
      });
      for (const DispatchRule& rule : {dispatch::All(), dispatch::Slice(), dispatch::SliceDp(), round_robin}) {
        const auto back = group->Call<&Member::Identity>(rule, collect::Flatten(), batch).Get(kGenerous);
        ASSERT_TRUE(back.ok()) << back.status();
        EXPECT_EQ(*back, batch) << text << " " << DispatchName(rule.kind) << " " << rows;
      }
    }
    EXPECT_TRUE(group->Destroy(kGenerous).ok());
  }
}

TEST_P(ActorGroupTest, AMethodMayReturnMoreRowsThanItGot) {
  const auto job = StartJob(4);
  const auto group = SpawnMembers(*job, "2x2");
  const std::vector<int> rows{1, 2, 3, 4, 5};
  const std::vector<int> offsets{10, 20, 30, 40, 50};
  const auto twice =
      group.Call<&Member::Twice>(dispatch::SliceDp(), collect::Flatten(), rows, 100, offsets).Get(kGenerous);
  ASSERT_TRUE(twice.ok()) << twice.status();
  EXPECT_THAT(*twice, ElementsAre(110, 110, 220, 220, 330, 330, 440, 440, 550, 550));
  const auto unequal =
      group.Call<&Member::Twice>(dispatch::Slice(), collect::Flatten(), rows, 1, std::vector<int>{1}).Get(kGenerous);
  EXPECT_EQ(unequal.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unequal.status().message()), HasSubstr("5 rows, another has 1"));
  const auto lost = group
                        .Call<&Member::Twice>(dispatch::Fn([](int, int rank) { return std::vector<int>{rank}; }),
                                              collect::Flatten(), rows, 1, offsets)
                        .Get(kGenerous);
  EXPECT_THAT(std::string(lost.status().message()), HasSubstr("was given 1 rows and returned 2"));
}

TEST_P(ActorGroupTest, CollectRulesDoWhatTheySay) {
  const auto job = StartJob(4);
  const auto group = SpawnMembers(*job, "dp=2,tp=2");
  EXPECT_THAT(*group.Call<&Member::Rank>(dispatch::All(), collect::None()).Get(kGenerous), ElementsAre(0, 1, 2, 3));
  EXPECT_EQ(*group.Call<&Member::Rank>(dispatch::All(), collect::First()).Get(kGenerous), 0);
  EXPECT_EQ(*group.Call<&Member::Rank>(dispatch::All(), collect::Sum()).Get(kGenerous), 6);
  const std::vector<int> rows{1, 2, 3, 4, 5};
  // Ranks 0 and 1 have the same three rows, ranks 2 and 3 the other two: each slice counts once.
  EXPECT_EQ(*group.Call<&Member::Rows>(dispatch::SliceDp(), collect::Sum(), rows).Get(kGenerous), 5);
  EXPECT_EQ(*group.Call<&Member::Rows>(dispatch::SliceDp(), collect::Mean(), rows).Get(kGenerous), 2.5);
  EXPECT_THAT(*group.Call<&Member::Rows>(dispatch::Slice(), collect::None(), rows).Get(kGenerous),
              ElementsAre(2, 1, 1, 1));
  EXPECT_EQ(*group.Call<&Member::Rows>(dispatch::Slice(), collect::Mean(), rows).Get(kGenerous), 1.25);
  EXPECT_THAT(*group.Call<&Member::Sums>(dispatch::SliceDp(), collect::Sum(), rows).Get(kGenerous), ElementsAre(5, 15));
  EXPECT_THAT(*group.Call<&Member::Rows>(dispatch::Slice(), collect::None(), dispatch::Whole(rows)).Get(kGenerous),
              Each(5));
}

TEST_P(ActorGroupTest, AnErrorOfOneMemberFailsTheCallNamingIt) {
  const auto job = StartJob(4);
  const auto group = SpawnMembers(*job, "4");
  const absl::Status status = group.Call<&Member::FailOn>(dispatch::All(), collect::None(), 2).Get(kGenerous);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("member[2] (rank 2, host "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("): FailOn: bad shard"));
  EXPECT_TRUE(group.Call<&Member::FailOn>(dispatch::All(), collect::None(), 9).Get(kGenerous).ok());
}

TEST_P(ActorGroupTest, AMemberKnowsItsPlace) {
  const auto job = StartJob(4);
  const auto group = SpawnMembers(*job, "2x2");
  EXPECT_THAT(*group.Call<&Member::Where>(dispatch::All(), collect::None()).Get(kGenerous),
              ElementsAre("member[0] dp=2,fsdp=2 0", "member[1] dp=2,fsdp=2 1", "member[2] dp=2,fsdp=2 2",
                          "member[3] dp=2,fsdp=2 3"));
  const auto third = job->Lookup<Member>("member[3]", kGenerous);
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(*third->Call<&Member::Rank>().Get(kGenerous), 3);
}

TEST_P(ActorGroupTest, MembersMakeCollectivesOverADimension) {
  const auto job = StartJob(4);
  const auto group = SpawnMembers(*job, "2x2");
  const auto over = [&](const std::string& dim) {
    return *group.Call<&Member::AllReduceRanks>(dispatch::All(), collect::None(), dim).Get(kGenerous);
  };
  EXPECT_THAT(over("dp"), ElementsAre(2, 4, 2, 4));
  EXPECT_THAT(over("fsdp"), ElementsAre(1, 1, 5, 5));
}

TEST_P(ActorGroupTest, AMemberThatFailsDoesNotKeepTheOthersFromEnding) {
  const auto job = StartJob(2);
  const auto group = SpawnMembers(*job, "2");
  const auto result = group.Call<&Member::Lonely>(dispatch::All(), collect::None()).Get(kGenerous);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  group.Revoke(absl::AbortedError("member[1] failed"));
  group.Reset();
  EXPECT_TRUE(group.Call<&Member::Rejoin>(dispatch::All(), collect::None()).Get(kGenerous).ok());
  EXPECT_THAT(*group.Call<&Member::AllReduceRanks>(dispatch::All(), collect::None(), "dp").Get(kGenerous),
              ElementsAre(1, 1));
}

TEST_P(ActorGroupTest, AConstructorThatFailsEndsTheOthersThatWaitForIt) {
  const auto job = StartJob(3);
  const auto group = ActorGroup<Brittle>::Spawn(*job, *DeviceMesh::Parse("3"), {.name = "brittle"}, 1);
  EXPECT_EQ(group.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("brittle[1] (rank 1, host "));
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("constructor: no weights"));
  const auto good = ActorGroup<Brittle>::Spawn(*job, *DeviceMesh::Parse("3"), {.name = "brittle"}, 7);
  ASSERT_TRUE(good.ok()) << good.status();
  EXPECT_EQ(*good->Call<&Brittle::Ping>(dispatch::All(), collect::Sum()).Get(kGenerous), 3);
}

TEST_P(ActorGroupTest, AMeshThatDoesNotFitIsAnError) {
  const auto job = StartJob(3);
  const auto group = ActorGroup<Member>::Spawn(*job, *DeviceMesh::Parse("2x2"), {.name = "member"}, 0);
  EXPECT_EQ(group.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(group.status().message()), HasSubstr("4 ranks, from worker 0 on there are 3 workers"));
}

TEST_P(ActorGroupTest, SeveralGroupsShareWorkers) {
  const auto job = StartJob(2);
  const auto first = SpawnMembers(*job, "2");
  const auto second = ActorGroup<Member>::Spawn(*job, *DeviceMesh::Parse("1"), {.name = "other", .first_worker = 1}, 5);
  ASSERT_TRUE(second.ok()) << second.status();
  const auto a = first.Call<&Member::AllReduceRanks>(dispatch::All(), collect::First(), "dp");
  const auto b = second->Call<&Member::AllReduceRanks>(dispatch::All(), collect::First(), "dp");
  EXPECT_EQ(*a.Get(kGenerous), 1);
  EXPECT_EQ(*b.Get(kGenerous), 5);
}

}  // namespace
}  // namespace troupe::runtime
