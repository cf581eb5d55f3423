#include "runtime/collective/internal/piece_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace troupe::runtime::internal {
namespace {

constexpr size_t kMiB = 1 << 20;

TEST(PiecePoolTest, MemoryComesBackWhenTheLastHolderLetsGo) {
  const auto pool = PiecePool::Create(64 * kMiB);
  std::byte* bytes = nullptr;
  Buffer buffer = pool->Allocate(kMiB, &bytes);
  Buffer copy = buffer;
  buffer = Buffer();
  EXPECT_EQ(pool->free_bytes(), 0u);
  EXPECT_EQ(copy.data(), bytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes) % 64, 0u);
  copy = Buffer();
  EXPECT_EQ(pool->free_bytes(), kMiB);
}

TEST(PiecePoolTest, ABlockServesSizesThatAreALittleSmaller) {
  const auto pool = PiecePool::Create(64 * kMiB);
  std::byte* first = nullptr;
  pool->Allocate(kMiB, &first);
  EXPECT_EQ(pool->free_bytes(), kMiB);
  std::byte* second = nullptr;
  const Buffer again = pool->Allocate(kMiB - 100, &second);
  EXPECT_EQ(second, first);
  EXPECT_EQ(again.size(), kMiB - 100);
  EXPECT_EQ(pool->free_bytes(), 0u);
}

TEST(PiecePoolTest, WhatComesBackBeyondTheLimitIsFreed) {
  const auto pool = PiecePool::Create(2 * kMiB);
  {
    std::vector<Buffer> buffers;
    std::byte* bytes = nullptr;
    for (int i = 0; i < 5; ++i) buffers.push_back(pool->Allocate(kMiB, &bytes));
  }
  EXPECT_EQ(pool->free_bytes(), 2 * kMiB);
}

TEST(PiecePoolTest, SmallPiecesAreNotPooled) {
  const auto pool = PiecePool::Create(2 * kMiB);
  std::byte* bytes = nullptr;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}}) EXPECT_EQ(pool->Allocate(size, &bytes).size(), size);
  EXPECT_EQ(pool->free_bytes(), 0u);
}

TEST(PiecePoolTest, BuffersMayOutliveThePool) {
  auto pool = PiecePool::Create(64 * kMiB);
  std::byte* bytes = nullptr;
  Buffer buffer = pool->Allocate(kMiB, &bytes);
  pool.reset();
  std::memset(bytes, 1, kMiB);
  buffer = Buffer();
}

TEST(PiecePoolTest, ThreadsShareIt) {
  const auto pool = PiecePool::Create(8 * kMiB);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        std::byte* bytes = nullptr;
        const Buffer buffer = pool->Allocate(kMiB / 8 + static_cast<size_t>(i % 3) * 10000, &bytes);
        std::memset(bytes, t, buffer.size());
        EXPECT_EQ(buffer.data()[buffer.size() - 1], static_cast<std::byte>(t));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(pool->free_bytes(), 8 * kMiB);
}

}  // namespace
}  // namespace troupe::runtime::internal
