#include "runtime/collective/collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <functional>
#include <latch>
#include <numeric>
#include <random>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/collective/in_memory_group.h"
#include "runtime/mesh/device_mesh.h"
#include "runtime/mesh/microbatch_tree.h"

namespace troupe::runtime {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Sums of these depend on the order of additions.
std::vector<float> Values(int rank, size_t count) {
  std::mt19937 random(static_cast<uint32_t>(1000 * rank + 7));
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::ldexp(static_cast<float>(static_cast<int32_t>(random())) / 3.0f, static_cast<int>(random() % 30) - 40);
  }
  return values;
}

/// The sum over ranks along the tree, element by element, done serially.
std::vector<float> SerialSum(const std::vector<std::vector<float>>& of_rank) {
  std::vector<float> sums(of_rank[0].size());
  for (size_t i = 0; i < sums.size(); ++i) {
    std::vector<float> leaves;
    for (const auto& values : of_rank) leaves.push_back(values[i]);
    sums[i] = TreeSum(leaves);
  }
  return sums;
}

bool SameBits(absl::Span<const float> a, absl::Span<const float> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

/// Runs one thread a member; returns the status of each.
std::vector<absl::Status> OnEachMember(int size, const std::function<absl::Status(int)>& body) {
  std::vector<absl::Status> statuses(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] { statuses[static_cast<size_t>(rank)] = body(rank); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

/// The same, on a fresh in-memory group, all of whose members must succeed.
void OnCollectives(int size, const std::function<absl::Status(Collective&)>& body) {
  InMemoryGroup group(size);
  for (const absl::Status& status : OnEachMember(size, [&](int rank) {
         Collective collective(group.member(rank), CollectiveOptions{});
         return body(collective);
       })) {
    ASSERT_TRUE(status.ok()) << status;
  }
}

Buffer Text(const std::string& text) { return Buffer::Copy(text.data(), text.size()); }
std::string AsText(const Buffer& buffer) {
  return std::string(reinterpret_cast<const char*>(buffer.data()), buffer.size());
}

constexpr size_t kRaggedSizes[] = {0, 1, 2, 3, 7, 8, 9, 1023, 1025, 4099, 20011};

class CollectiveOfSize : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(OneToEightRanks, CollectiveOfSize, ::testing::Range(1, 9));

TEST_P(CollectiveOfSize, AllReduceEqualsTheSerialSumAlongTheTree) {
  const int size = GetParam();
  for (const size_t count : kRaggedSizes) {
    std::vector<std::vector<float>> inputs;
    for (int rank = 0; rank < size; ++rank) inputs.push_back(Values(rank, count));
    const std::vector<float> expected = SerialSum(inputs);
    OnCollectives(size, [&](Collective& collective) {
      std::vector<float> data = inputs[static_cast<size_t>(collective.rank())];
      const absl::Status status = collective.AllReduce(absl::MakeSpan(data));
      EXPECT_TRUE(SameBits(data, expected)) << size << " ranks, " << count << " elements";
      return status;
    });
  }
}

TEST_P(CollectiveOfSize, AllReduceOfDoublesEqualsTheSerialSumAlongTheTree) {
  const int size = GetParam();
  for (const size_t count : {size_t{1}, size_t{5000}}) {
    OnCollectives(size, [&](Collective& collective) {
      std::vector<double> data(count);
      std::vector<std::vector<double>> leaves(count);
      for (int rank = 0; rank < size; ++rank) {
        const std::vector<float> values = Values(rank, count);
        for (size_t i = 0; i < count; ++i) {
          leaves[i].push_back(values[i] / 7.0);
          if (rank == collective.rank()) data[i] = values[i] / 7.0;
        }
      }
      const absl::Status status = collective.AllReduce(absl::MakeSpan(data));
      for (size_t i = 0; i < count; ++i) EXPECT_EQ(data[i], TreeSum(leaves[i])) << i;
      return status;
    });
  }
}

TEST_P(CollectiveOfSize, ReduceScatterEqualsTheSerialSumAlongTheTree) {
  const int size = GetParam();
  for (const size_t count : kRaggedSizes) {
    const size_t total = count * static_cast<size_t>(size);
    std::vector<std::vector<float>> inputs;
    for (int rank = 0; rank < size; ++rank) inputs.push_back(Values(rank, total));
    const std::vector<float> expected = SerialSum(inputs);
    OnCollectives(size, [&](Collective& collective) {
      const size_t rank = static_cast<size_t>(collective.rank());
      std::vector<float> recv(count, -1);
      const absl::Status status = collective.ReduceScatter(inputs[rank], absl::MakeSpan(recv));
      EXPECT_TRUE(SameBits(recv, absl::MakeSpan(expected).subspan(rank * count, count))) << size << " " << count;
      return status;
    });
  }
}

TEST_P(CollectiveOfSize, ReduceScatterVTakesRaggedCountsAndMayWriteIntoItsInput) {
  const int size = GetParam();
  std::vector<size_t> counts;
  for (int rank = 0; rank < size; ++rank)
    counts.push_back(static_cast<size_t>(rank * rank * 37 % 2503));  // count 0 is 0
  const size_t total = std::accumulate(counts.begin(), counts.end(), size_t{0});
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(Values(rank, total));
  const std::vector<float> expected = SerialSum(inputs);
  OnCollectives(size, [&](Collective& collective) {
    const size_t rank = static_cast<size_t>(collective.rank());
    const size_t begin = std::accumulate(counts.begin(), counts.begin() + collective.rank(), size_t{0});
    std::vector<float> data = inputs[rank];
    const absl::Status status =
        collective.ReduceScatterV(data, counts, absl::MakeSpan(data).subspan(begin, counts[rank]));
    EXPECT_TRUE(SameBits(absl::MakeSpan(data).subspan(begin, counts[rank]),
                         absl::MakeSpan(expected).subspan(begin, counts[rank])));
    return status;
  });
}

TEST_P(CollectiveOfSize, AllGatherPutsEveryMembersBytesInItsPlace) {
  const int size = GetParam();
  for (const size_t count : kRaggedSizes) {
    OnCollectives(size, [&](Collective& collective) {
      const std::vector<float> mine = Values(collective.rank(), count);
      std::vector<float> all(count * static_cast<size_t>(size));
      const auto send = absl::MakeSpan(reinterpret_cast<const std::byte*>(mine.data()), count * sizeof(float));
      const auto recv = absl::MakeSpan(reinterpret_cast<std::byte*>(all.data()), all.size() * sizeof(float));
      const absl::Status status = collective.AllGather(send, recv);
      for (int rank = 0; rank < size; ++rank) {
        EXPECT_TRUE(
            SameBits(absl::MakeSpan(all).subspan(static_cast<size_t>(rank) * count, count), Values(rank, count)));
      }
      return status;
    });
  }
}

TEST_P(CollectiveOfSize, AllGatherMaySendFromItsOwnPlace) {
  const int size = GetParam();
  OnCollectives(size, [&](Collective& collective) {
    std::vector<std::byte> all(static_cast<size_t>(size) * 3, std::byte{0});
    const auto own = absl::MakeSpan(all).subspan(static_cast<size_t>(collective.rank()) * 3, 3);
    for (std::byte& b : own) b = static_cast<std::byte>(collective.rank() + 1);
    const absl::Status status = collective.AllGather(own, absl::MakeSpan(all));
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(static_cast<size_t>(all[i]), i / 3 + 1);
    return status;
  });
}

TEST_P(CollectiveOfSize, AllGatherVTakesBuffersOfAnySize) {
  const int size = GetParam();
  OnCollectives(size, [&](Collective& collective) {
    const auto name = [](int rank) {
      return std::string(static_cast<size_t>(rank * 100), static_cast<char>('a' + rank));
    };
    const auto all = collective.AllGatherV(Text(name(collective.rank())));
    if (!all.ok()) return all.status();
    EXPECT_EQ(all->size(), static_cast<size_t>(size));
    for (int rank = 0; rank < size; ++rank) EXPECT_EQ(AsText((*all)[static_cast<size_t>(rank)]), name(rank));
    return absl::OkStatus();
  });
}

TEST_P(CollectiveOfSize, BroadcastGivesTheBytesOfAnyRoot) {
  const int size = GetParam();
  for (int root = 0; root < size; ++root) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5000}}) {
      OnCollectives(size, [&](Collective& collective) {
        std::vector<float> data = Values(collective.rank(), count);
        const absl::Status status = collective.Broadcast(
            root, absl::MakeSpan(reinterpret_cast<std::byte*>(data.data()), count * sizeof(float)));
        EXPECT_TRUE(SameBits(data, Values(root, count)));
        if (!status.ok()) return status;
        const auto text = collective.Broadcast(root, collective.rank() == root ? Text("hello") : Buffer());
        if (!text.ok()) return text.status();
        EXPECT_EQ(AsText(*text), "hello");
        return absl::OkStatus();
      });
    }
  }
}

TEST_P(CollectiveOfSize, AllToAllTurnsRowsIntoColumns) {
  const int size = GetParam();
  OnCollectives(size, [&](Collective& collective) {
    const auto message = [](int from, int to) {
      return from == to ? std::string()
                        : absl::StrCat(from, "->", to, std::string(static_cast<size_t>(from * to), '.'));
    };
    std::vector<Buffer> send;
    for (int to = 0; to < size; ++to) send.push_back(Text(message(collective.rank(), to)));
    const auto received = collective.AllToAll(std::move(send));
    if (!received.ok()) return received.status();
    for (int from = 0; from < size; ++from) {
      EXPECT_EQ(AsText((*received)[static_cast<size_t>(from)]), message(from, collective.rank()));
    }
    return absl::OkStatus();
  });
}

TEST_P(CollectiveOfSize, NobodyPassesABarrierBeforeAllHaveCome) {
  const int size = GetParam();
  std::atomic<int> arrived{0};
  OnCollectives(size, [&](Collective& collective) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      const absl::Status status = collective.Barrier();
      if (!status.ok()) return status;
      EXPECT_GE(arrived.load(), round * size);
    }
    return absl::OkStatus();
  });
}

TEST(CollectiveTest, ManyOperationsInARowStayInStep) {
  OnCollectives(4, [](Collective& collective) {
    for (int i = 0; i < 300; ++i) {
      std::vector<float> data(static_cast<size_t>(i % 7 * 1000), 1.0f);
      absl::Status status = collective.AllReduce(absl::MakeSpan(data));
      if (status.ok() && i % 3 == 0) status = collective.Barrier();
      if (status.ok()) status = collective.Broadcast(i % 4, Text("x")).status();
      if (!status.ok()) return status;
      for (const float value : data) EXPECT_EQ(value, 4.0f);
    }
    return absl::OkStatus();
  });
}

TEST(CollectiveTest, DimensionsOfAMeshSumAlongTheWholeTree) {
  const DeviceMesh mesh = *DeviceMesh::Parse("2x2");
  std::vector<std::vector<float>> inputs;
  for (int rank = 0; rank < 4; ++rank) inputs.push_back(Values(rank, 10000));
  const std::vector<float> expected = SerialSum(inputs);
  InMemoryGroup group(4);
  for (const absl::Status& status : OnEachMember(4, [&](int rank) {
         Collective fsdp(group.member(rank), mesh.slice("fsdp", rank), {.name = "fsdp", .channel = 1});
         Collective dp(group.member(rank), mesh.slice("dp", rank), {.name = "dp", .channel = 2});
         std::vector<float> shard(5000);
         absl::Status result = fsdp.ReduceScatter(inputs[static_cast<size_t>(rank)], absl::MakeSpan(shard));
         if (result.ok()) result = dp.AllReduce(absl::MakeSpan(shard));
         const size_t begin = static_cast<size_t>(fsdp.rank()) * 5000;
         EXPECT_TRUE(SameBits(shard, absl::MakeSpan(expected).subspan(begin, 5000)));
         return result;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CollectiveTest, TwoChannelsOfOneTransportWorkAtOnce) {
  InMemoryGroup group(2);
  for (const absl::Status& status : OnEachMember(4, [&](int thread) {
         const int rank = thread % 2;
         Collective collective(group.member(rank), {.name = "c", .channel = static_cast<uint64_t>(thread / 2)});
         for (int i = 0; i < 200; ++i) {
           std::vector<float> data(10, static_cast<float>(thread / 2 + 1));
           const absl::Status result = collective.AllReduce(absl::MakeSpan(data));
           if (!result.ok()) return result;
           EXPECT_EQ(data[9], static_cast<float>(2 * (thread / 2 + 1)));
         }
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

/// Members that do different things; the errors of all.
std::vector<absl::Status> Disagree(int size, absl::Duration timeout,
                                   const std::function<absl::Status(Collective&)>& body) {
  InMemoryGroup group(size);
  return OnEachMember(size, [&](int rank) {
    Collective collective(group.member(rank), {.name = "dp", .timeout = timeout});
    const absl::Status warm_up = collective.Barrier();
    return warm_up.ok() ? body(collective) : warm_up;
  });
}

TEST(CollectiveTest, AnotherOperationOfAMemberRevokesAllAndNamesBoth) {
  const auto statuses = Disagree(4, absl::Minutes(5), [](Collective& collective) {
    std::vector<float> data(1024, 1.0f);
    if (collective.rank() == 2) {
      std::vector<float> part(256);
      return collective.ReduceScatter(data, absl::MakeSpan(part));
    }
    return collective.AllReduce(absl::MakeSpan(data));
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("all_reduce #1 (dp, 4096 bytes)"), HasSubstr("out of step"),
                      HasSubstr("reduce_scatter #1 (dp, 4096 bytes)")));
  }
}

TEST(CollectiveTest, AnotherSizeOfAMemberRevokesAllAndNamesBoth) {
  for (const int size : {2, 3, 4, 5, 8}) {
    for (const size_t count : {size_t{16}, size_t{20000}}) {
      const auto statuses = Disagree(size, absl::Minutes(5), [&](Collective& collective) {
        std::vector<float> data(collective.rank() == 1 ? count + 1 : count, 1.0f);
        return collective.AllReduce(absl::MakeSpan(data));
      });
      for (const absl::Status& status : statuses) {
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr(absl::StrCat("all_reduce #1 (dp, ", count * 4, " bytes)")),
                          HasSubstr(absl::StrCat("all_reduce #1 (dp, ", count * 4 + 4, " bytes)"))));
      }
    }
  }
}

TEST(CollectiveTest, AMemberThatSkippedAnOperationIsFound) {
  const auto statuses = Disagree(2, absl::Minutes(5), [](Collective& collective) {
    if (collective.rank() == 1) {
      const absl::Status sent = collective.Broadcast(1, Text("x")).status();
      if (!sent.ok()) return sent;
    }
    return collective.Barrier();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("out of step"), HasSubstr("barrier #1 (dp)"))) << status;
  }
}

TEST(CollectiveTest, AMemberThatDoesNotArriveIsNamedByAll) {
  // With 4 ranks some members wait for members that wait for the absent one.
  const std::vector<std::pair<const char*, std::function<absl::Status(Collective&)>>> operations = {
      {"all_reduce #1 (dp, 80000 bytes)",
       [](Collective& collective) {
         std::vector<float> data(20000);
         return collective.AllReduce(absl::MakeSpan(data));
       }},
      {"all_reduce #1 (dp, 40 bytes)",
       [](Collective& collective) {
         std::vector<float> data(10);
         return collective.AllReduce(absl::MakeSpan(data));
       }},
      {"barrier #1 (dp)", [](Collective& collective) { return collective.Barrier(); }},
  };
  for (const auto& [name, operation] : operations) {
    for (const int size : {4, 5}) {
      const auto statuses = Disagree(size, absl::Milliseconds(800), [&](Collective& collective) {
        return collective.rank() == 1 ? absl::OkStatus() : operation(collective);
      });
      for (int rank = 0; rank < size; ++rank) {
        if (rank == 1) continue;
        const absl::Status& status = statuses[static_cast<size_t>(rank)];
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
        EXPECT_EQ(status.message(), absl::StrCat(name, ": rank 1 did not arrive within 800ms")) << size << " ranks";
      }
    }
  }
}

/// Opens a latch once something was sent to member 0.
class SendsThenOpens final : public PointToPoint {
 public:
  SendsThenOpens(PointToPoint* inner, std::latch* sent) : inner_(inner), sent_(sent) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  absl::Status Send(int to, uint64_t tag, Buffer data) override {
    const absl::Status status = inner_->Send(to, tag, std::move(data));
    if (to == 0 && !sent_->try_wait()) sent_->count_down();
    return status;
  }
  absl::StatusOr<Buffer> Receive(int from, uint64_t tag, absl::Time deadline) override {
    return inner_->Receive(from, tag, deadline);
  }
  void Revoke(const absl::Status& why) override { inner_->Revoke(why); }
  absl::Status revoked() const override { return inner_->revoked(); }

 private:
  PointToPoint* inner_;
  std::latch* sent_;
};

TEST(CollectiveTest, AMemberWhoseDataWasNotReadYetIsNotCalledAbsent) {
  // Member 0 waits for 1, which never comes, while the data of 2 lies unread; 2 is too patient to have said anything
  // else.
  InMemoryGroup group(3);
  std::latch sent(1);
  const auto statuses = OnEachMember(3, [&](int rank) {
    if (rank == 1) return absl::OkStatus();
    SendsThenOpens transport(group.member(rank), &sent);
    if (rank == 0) sent.wait();
    Collective collective(&transport,
                          {.name = "dp", .timeout = rank == 0 ? absl::Milliseconds(200) : absl::Minutes(5)});
    std::vector<float> data(10);
    return collective.AllReduce(absl::MakeSpan(data));
  });
  for (const int rank : {0, 2}) {
    EXPECT_EQ(statuses[static_cast<size_t>(rank)].message(),
              "all_reduce #0 (dp, 40 bytes): rank 1 did not arrive within 200ms");
  }
}

TEST(CollectiveTest, ABroadcastNamesTheMemberOnTheWayThatDidNotArrive) {
  // Member 3 hears from 2, and 2 from the root, which is gone long before anybody is late.
  const auto statuses = Disagree(4, absl::Milliseconds(800), [](Collective& collective) {
    return collective.rank() == 2 ? absl::OkStatus() : collective.Broadcast(0, Text("x")).status();
  });
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(statuses[1].ok()) << statuses[1];
  EXPECT_THAT(std::string(statuses[3].message()), HasSubstr(": rank 2 did not arrive within 800ms"));
}

TEST(CollectiveTest, ADeadMemberRevokesAllAndIsNamed) {
  for (const int size : {2, 3, 4, 8}) {
    for (const bool large : {false, true}) {
      InMemoryGroup group(size);
      const auto statuses = OnEachMember(size, [&](int rank) {
        Collective collective(group.member(rank), {.name = "dp", .timeout = absl::Minutes(5)});
        if (rank == size - 1) {
          group.Kill(rank, absl::UnavailableError("killed by SIGKILL"));
          return absl::OkStatus();
        }
        std::vector<float> data(large ? 20000 : 10);
        return collective.AllReduce(absl::MakeSpan(data));
      });
      for (int rank = 0; rank + 1 < size; ++rank) {
        const absl::Status& status = statuses[static_cast<size_t>(rank)];
        EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
        EXPECT_THAT(
            std::string(status.message()),
            AllOf(HasSubstr("all_reduce #0 (dp"), HasSubstr(absl::StrCat("rank ", size - 1, ": killed by SIGKILL"))));
      }
    }
  }
}

TEST(CollectiveTest, ARevokedTransportFailsEveryLaterOperationWithItsReason) {
  InMemoryGroup group(2);
  group.member(1)->Revoke(absl::CancelledError("the job was interrupted"));
  Collective collective(group.member(0), {.name = "dp"});
  const absl::Status status = collective.Barrier();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(status.message(), "barrier #0 (dp): the job was interrupted");
  EXPECT_EQ(collective.Barrier().message(), "barrier #1 (dp): the job was interrupted");
}

TEST(CollectiveTest, RestartsOnANewTransport) {
  InMemoryGroup broken(2);
  InMemoryGroup fresh(2);
  for (const absl::Status& status : OnEachMember(2, [&](int rank) {
         Collective collective(broken.member(rank), {.name = "dp"});
         if (rank == 0) broken.member(0)->Revoke(absl::UnavailableError("rank 1 died"));
         for (int i = 0; i <= rank; ++i) EXPECT_FALSE(rank == 0 && collective.Barrier().ok());
         collective.Restart(fresh.member(rank));
         EXPECT_EQ(collective.operations(), 0u);
         return collective.Barrier();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CollectiveTest, BytesThatAreNoPieceAreAnError) {
  for (const std::string& junk : {std::string("short"), std::string(100, 'x')}) {
    InMemoryGroup group(2);
    // Channel 0 sends its data with tag 0.
    ASSERT_TRUE(group.member(1)->Send(0, 0, Text(junk)).ok());
    Collective collective(group.member(0), {.name = "dp"});
    const absl::Status status = collective.Barrier();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 sent"));
    EXPECT_FALSE(group.member(1)->revoked().ok());
  }
}

}  // namespace
}  // namespace troupe::runtime
