#include "tests/compress/golden.h"

#include <set>

#include "tests/compress/support.h"

namespace pleat::compress::test {
namespace {

TEST(Golden, EveryPathGivesTheCommittedBytes) {
  const auto committed = golden::read_lines(PLEAT_GOLDEN_FILE);
  ASSERT_GE(committed.size(), 200u);
  for (const Path& path : paths()) {
    const UsePath use(path);
    const auto now = golden::library_lines();
    ASSERT_EQ(now.size(), committed.size());
    for (std::size_t i = 0; i < now.size(); ++i) EXPECT_EQ(now[i], committed[i]) << path.name;
  }
}

TEST(Golden, CoversEveryKindOfPayload) {
  std::set<int> kinds;
  const golden::Backend backend = golden::library_backend();
  for (const golden::Case& input : golden::cases()) {
    const auto payload = backend.encode(input);
    ASSERT_FALSE(payload.empty()) << input.name;
    kinds.insert(payload[6]);
    kinds.insert(100 + payload[9]);  // flags
  }
  for (const int kind : {0, 1, 2, 3, 4, 5, 100 + 4, 100 + 5, 100 + 2, 100 + 12, 100 + 13, 100 + 28,
                         100 + 68, 100 + 69, 100 + 76, 100 + 196, 100 + 92, 100 + 133})
    EXPECT_EQ(kinds.count(kind), 1u) << kind;
}

}  // namespace
}  // namespace pleat::compress::test
