#include "cli/store_folder.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace nmc::cli {
namespace {

// The store's folder is made by its master; this process only says where, as a server does.
TEST(StoreFolderTest, WhatAProcessLeftIsFoundByItsPidAndNobodyElses) {
  ASSERT_TRUE(abandoned_store_folders_of(::getpid()).empty());
  {
    const auto folder = StoreFolder::choose(std::nullopt, 0);
    ASSERT_TRUE(folder) << folder.error().message;
    std::filesystem::create_directories(folder->path());
    EXPECT_EQ(abandoned_store_folders_of(::getpid()), std::vector<Path>{folder->path()});
    EXPECT_TRUE(abandoned_store_folders_of(::getppid()).empty());
  }
  EXPECT_TRUE(abandoned_store_folders_of(::getpid()).empty());
}

}  // namespace
}  // namespace nmc::cli
