// Profiles in files: reading, replacing, and files that must stay as they are.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "sensitivity/profile.h"
#include "tests/sensitivity/test_support.h"

namespace pleat::sensitivity {
namespace {

using testing::expect_equal;
using testing::full_profile;

class ProfileFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "pleat-profile-XXXXXX";
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    path_ = folder_ / "profile.json";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void put(const std::string& text) { std::ofstream(path_, std::ios::binary) << text; }
  [[nodiscard]] std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  [[nodiscard]] std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_), {});
  }
  void expect_left_alone(ReadStatus status) {
    const ReadResult result = read_profile(path_);
    EXPECT_EQ(result.status, status) << result.message;
    EXPECT_FALSE(result.message.empty());
    EXPECT_EQ(result.message.find(folder_.string()), std::string::npos) << result.message;
    const std::string wrong = write_profile(full_profile(), path_);
    EXPECT_NE(wrong.find("left as it is"), std::string::npos) << wrong;
    EXPECT_EQ(wrong.find('\n'), std::string::npos);
    EXPECT_EQ(files(), 1);
  }

  std::filesystem::path folder_;
  std::filesystem::path path_;
};

TEST_F(ProfileFile, RoundTripsThroughAFileThatOnlyItsOwnerReads) {
  EXPECT_EQ(read_profile(path_).status, ReadStatus::kMissing);
  EXPECT_EQ(write_profile(full_profile(), path_), "");
  const ReadResult result = read_profile(path_);
  ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
  expect_equal(result.profile, full_profile());
  struct stat facts = {};
  ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  EXPECT_EQ(files(), 1) << "nothing is left beside it";
}

TEST_F(ProfileFile, ProfileIsReplaced) {
  ASSERT_EQ(write_profile(Profile{}, path_), "");
  EXPECT_EQ(write_profile(full_profile(), path_), "");
  EXPECT_EQ(read_profile(path_).profile.units.size(), 3u);
  EXPECT_EQ(files(), 1);
}

TEST_F(ProfileFile, NameWithoutAFolderIsInTheWorkingDirectory) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  EXPECT_EQ(write_profile(full_profile(), "profile.json"), "");
  EXPECT_EQ(read_profile("profile.json").status, ReadStatus::kOk);
  std::filesystem::current_path(before);
  EXPECT_EQ(files(), 1);
}

TEST_F(ProfileFile, LargeProfilesRoundTrip) {
  Profile profile;
  for (std::uint64_t key = 0; key < 2000; ++key) {
    profile.units.push_back(testing::full_unit(key));
  }
  ASSERT_EQ(write_profile(profile, path_), "");
  ASSERT_GT(std::filesystem::file_size(path_), 500'000u);
  expect_equal(read_profile(path_).profile, profile);
}

TEST_F(ProfileFile, OtherFilesAreLeftAsTheyAre) {
  for (const std::string& other :
       {std::string("precious"), std::string(), std::string(100'000, '['), std::string("{}")}) {
    put(other);
    expect_left_alone(ReadStatus::kForeign);
    EXPECT_EQ(text(), other);
  }
}

TEST_F(ProfileFile, BrokenProfilesAndThoseOfOtherVersionsAreLeftAsTheyAre) {
  const std::string whole = to_json(full_profile());
  for (const std::string& other :
       {whole.substr(0, whole.size() / 2), std::string(R"({"pleat_profile": 3})"),
        whole + std::string(100'000, 'x')}) {
    put(other);
    expect_left_alone(ReadStatus::kDamaged);
    EXPECT_EQ(text(), other);
  }
}

TEST_F(ProfileFile, FilesThatAreTooLargeAreRefusedUnread) {
  put("");
  std::filesystem::resize_file(path_, std::uintmax_t{1} << 30);
  expect_left_alone(ReadStatus::kForeign);
  std::filesystem::resize_file(path_, std::uintmax_t{200} << 20);  // only zeros
  expect_left_alone(ReadStatus::kForeign);
}

TEST_F(ProfileFile, FoldersPipesAndDevicesAreRefused) {
  std::filesystem::create_directory(path_);
  expect_left_alone(ReadStatus::kForeign);
  std::filesystem::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  expect_left_alone(ReadStatus::kForeign);  // without waiting for a writer
  EXPECT_EQ(read_profile("/dev/zero").status, ReadStatus::kForeign);
  EXPECT_NE(write_profile(full_profile(), "/dev/null"), "");
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(ProfileFile, LinksAreReadThroughAndNeverReplaced) {
  ASSERT_EQ(write_profile(full_profile(), path_), "");
  const std::filesystem::path link = folder_ / "link";
  std::filesystem::create_symlink(path_, link);
  EXPECT_EQ(read_profile(link).status, ReadStatus::kOk);
  EXPECT_EQ(write_profile(Profile{}, link), "it is a link: left as it is");
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  expect_equal(read_profile(path_).profile, full_profile());

  std::filesystem::remove(path_);
  EXPECT_EQ(write_profile(Profile{}, link), "it is a link: left as it is") << "to nowhere";
  std::filesystem::remove(link);
  std::filesystem::create_symlink("/dev/zero", link);
  EXPECT_EQ(read_profile(link).status, ReadStatus::kForeign);
  std::filesystem::remove(link);
  std::filesystem::create_symlink(link, link);
  EXPECT_EQ(read_profile(link).status, ReadStatus::kUnreadable);
}

TEST_F(ProfileFile, SystemErrorsAreReportedInOneLine) {
  EXPECT_EQ(write_profile(full_profile(), folder_ / "no" / "profile.json"),
            "no file can be made beside it: No such file or directory");
  put("precious");
  EXPECT_EQ(read_profile(path_ / "below").status, ReadStatus::kUnreadable);
  EXPECT_EQ(write_profile(full_profile(), path_ / "below"), "Not a directory: left as it is");
  EXPECT_NE(write_profile(full_profile(), std::string("a\0b", 3)), "");
  EXPECT_NE(write_profile(full_profile(), ""), "");
  EXPECT_EQ(files(), 1);
}

TEST_F(ProfileFile, UnreadableProfileIsNotWritten) {
  ASSERT_EQ(write_profile(full_profile(), path_), "");
  Profile odd = full_profile();
  odd.units[1].width = 5;
  EXPECT_NE(write_profile(odd, path_).find("unit 2, \"width\""), std::string::npos);
  odd = full_profile();
  odd.units[1].key = odd.units[0].key;
  EXPECT_NE(write_profile(odd, path_).find("one key"), std::string::npos);
  expect_equal(read_profile(path_).profile, full_profile());
}

TEST_F(ProfileFile, ReadersSeeOneProfileOrTheOtherWhileTwoWrite) {
  Profile small;
  Profile large;
  small.units.resize(1);
  for (std::uint64_t key = 0; key < 300; ++key) {
    large.units.push_back(testing::full_unit(key));
  }
  ASSERT_EQ(write_profile(small, path_), "");
  const auto write = [&](const Profile& profile) {
    for (int i = 0; i < 20; ++i) {
      EXPECT_EQ(write_profile(profile, path_), "");
    }
  };
  std::thread one(write, std::cref(small));
  std::thread other(write, std::cref(large));
  for (int i = 0; i < 40; ++i) {
    const ReadResult result = read_profile(path_);
    ASSERT_EQ(result.status, ReadStatus::kOk) << result.message;
    EXPECT_TRUE(result.profile.units.size() == 1 || result.profile.units.size() == 300);
  }
  one.join();
  other.join();
  EXPECT_EQ(files(), 1);
}

}  // namespace
}  // namespace pleat::sensitivity
