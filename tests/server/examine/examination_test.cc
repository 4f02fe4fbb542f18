// Looking through the store and the files that it names: at once, and at the examiner's pace.
#include "server/examine/examination.h"

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/examine/examiner.h"
#include "server/examine/examining.h"
#include "tests/server/examine/examine_fixture.h"

namespace snug::server {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

using ExaminationTest = ExamineTest;

constexpr int64_t kMany = 12'000;

// Jobs a2, a3, ..., like the one that there is: each with an event and a request.
class LargeStoreTest : public ExamineTest {
 protected:
  void SetUp() override {
    JobRecord job = AJob("a", 1);
    ASSERT_TRUE(CreateJob(*Open().value(), job, {"ra", "x", "a", 9}).ok());
    Write(absl::StrCat(
        "WITH RECURSIVE n(i) AS (VALUES(2) UNION ALL SELECT i+1 FROM n WHERE i<", kMany,
        ") INSERT INTO jobs SELECT i, 'a' || i, tenant, state, spec, spec_sha256, view, "
        "infra_failures, oom_failures, not_before_us, last_resume_step, train_data, eval_data, "
        "output_dir, display_name, owner, created_us, ended_us, plans, 'ra' || i, 'x', 9 "
        "FROM n, jobs WHERE id='a';"
        "INSERT INTO events SELECT arrival, id, 0, state, '', 0 FROM jobs WHERE arrival>1"));
  }
};

// A whole store has no findings; each damage has one, by its name.
TEST_F(ExaminationTest, ExaminationFindsEachDamage) {
  {
    auto store = Open().value();
    JobRecord job = AJob("a", 1);
    Change change{.job = &job};
    change.events = {{.job = "a", .to = Job::STATE_QUEUED}};
    ASSERT_TRUE(store->Commit(change).ok());
    const v1::CheckStoreResponse whole = Examine(*store, APremises()).value();
    EXPECT_EQ(whole.findings_size(), 0) << whole.ShortDebugString();
    EXPECT_EQ(whole.jobs(), 1);
  }
  const auto found = [&](const std::string& damage, const std::string& repair) {
    const std::vector<std::string> checks = FoundAfter(damage);
    Write(repair);
    return checks;
  };
  EXPECT_THAT(found("UPDATE jobs SET spec_sha256='x' || spec_sha256",
                    "UPDATE jobs SET spec_sha256=substr(spec_sha256, 2)"),
              ElementsAre("spec_sha256"));
  EXPECT_THAT(found("UPDATE events SET seq=5", "UPDATE events SET seq=1"),
              Contains("dense_events"));
  EXPECT_THAT(found("UPDATE counts SET jobs=7", "UPDATE counts SET jobs=1"),
              Contains("count_of_jobs"));
  EXPECT_THAT(
      found("INSERT INTO reservations VALUES('cpu:0', 'a', 1, 5)", "DELETE FROM reservations"),
      Contains("reservation_of_an_open_attempt"));
}

// One damage for each check of rows of all jobs, far from one another.
TEST_F(LargeStoreTest, NoCheckOfRowsIsLeftOutAtAPace) {
  EXPECT_THAT(ChecksThatFoundAtAPace(*Reopened()), ElementsAre());
  Write(
      "UPDATE jobs SET request_id='ra6000' WHERE id='a7000';"
      "INSERT INTO labels VALUES('nobody', 'k', 'v');"
      "UPDATE events SET seq=20000 WHERE seq=12000;"
      "INSERT INTO events VALUES(20001, 'a11000', 8, 2, '', 0);"
      "INSERT INTO events VALUES(20002, 'lost', 0, 8, '', 0), (20003, 'lost', 4, 8, '', 0);"
      "UPDATE jobs SET state=6 WHERE id='a9000';"
      "UPDATE counts SET jobs=jobs+7");
  EXPECT_THAT(ChecksThatFoundAtAPace(*Reopened()),
              UnorderedElementsAre("one_job_of_a_request", "foreign_keys", "dense_events",
                                   "nothing_after_the_end", "one_end", "last_event_is_the_state",
                                   "row_of_each_job", "count_of_jobs"));
}

// By numbers and by texts, and where many rows have the same value.
TEST_F(LargeStoreTest, PartsAreSmallAndHaveEachRowOnce) {
  Write(
      "INSERT INTO labels SELECT 'a', 'k' || arrival, 'v' FROM jobs WHERE arrival<=3000;"
      "INSERT INTO labels SELECT id, 'k', 'v' FROM jobs WHERE arrival>1");
  auto store = Reopened();
  const Premises premises = APremises();
  const Rest at_once;
  Examining examining(*store, premises, at_once);
  const auto parts_of = [&](const Column& column) {
    std::multiset<std::string> rows;
    int64_t most = 0, parts = 0, beside = 0;
    const std::string sql = absl::StrCat("SELECT ", column.name, " FROM ", column.table, " WHERE ",
                                         column.name, " BETWEEN ?1 AND ?2");
    const auto look = [&](Database& database, const Range& range) {
      const size_t before = rows.size();
      const absl::Status read = database.Query(sql, range, [&](const Row& row) {
        rows.insert(row.Text(0));
        return absl::OkStatus();
      });
      most = std::max<int64_t>(most, rows.size() - before);
      ++parts;
      return read;
    };
    const auto count = [&] { return ++beside, absl::OkStatus(); };
    EXPECT_TRUE(examining.LookThrough(column, look, count).ok());
    EXPECT_EQ(parts, beside);
    const std::set<std::string> values(rows.begin(), rows.end());
    return std::vector<int64_t>{static_cast<int64_t>(rows.size()),
                                static_cast<int64_t>(values.size()), most};
  };
  for (const Column& column :
       {Column{"jobs", "arrival"}, Column{"events", "seq"}, Column{"jobs", "id"}})
    EXPECT_THAT(parts_of(column), ElementsAre(kMany, kMany, testing::Le(1000))) << column.table;
  // Those of one job are not parted.
  EXPECT_THAT(parts_of({"labels", "job"}), ElementsAre(3000 + kMany - 1, kMany, testing::Ge(3000)));
  EXPECT_THAT(parts_of({"webhooks", "job"}), ElementsAre(0, 0, 0));
}

// A page that is noise is a finding; what else there is is looked at all the same.
TEST_F(ExaminationTest, ADamagedPageIsFound) {
  auto store = Open().value();
  CommitOutput(*store);
  WriteText(dir_ + "/out-a/adapter_model.safetensors", "other");
  const int64_t page =
      store
          ->Ask<int64_t>([](Database& database) {
            return database.QueryInt("SELECT rootpage FROM sqlite_master WHERE name='labels'");
          })
          .value();
  const auto execute = [&](const char* sql) {
    const auto read = [sql](Database& database) { return database.Execute(sql); };
    ASSERT_TRUE(store->Read(read).ok()) << sql;
  };
  execute("PRAGMA wal_checkpoint(TRUNCATE)");
  std::fstream(dir_ + "/snug.db").seekp((page - 1) * 4096) << std::string(4096, '\x5a');
  execute("PRAGMA shrink_memory");  // What is kept of the file is forgotten.
  const std::vector<std::string> found = ChecksThatFoundAtAPace(*store);
  EXPECT_THAT(std::set<std::string>(found.begin(), found.end()),
              UnorderedElementsAre("pages", "foreign_keys", "outputs"));
  EXPECT_THAT(ChecksThatFound(*store), Contains("pages"));
}

TEST_F(ExaminationTest, ReadsOutputsToTheLastByte) {
  auto store = Open().value();
  CommitOutput(*store);
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre());
  std::fstream(dir_ + "/out-a/adapter_model.safetensors").seekp(2'999'999) << 'x';
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("outputs"));
  fs::remove_all(dir_ + "/out-a");
  EXPECT_THAT(ChecksThatFound(*store), ElementsAre("outputs"));
}

// Also within a file: of three megabytes there are rests behind the first and the second.
TEST_F(ExaminationTest, RestsBetweenPiecesAndEndsThere) {
  auto store = Open().value();
  int without = 0, with = 0;
  EXPECT_TRUE(Examine(*store, APremises(), [&](absl::Duration) { return ++without > 0; }).ok());
  CommitOutput(*store);
  EXPECT_TRUE(Examine(*store, APremises(), [&](absl::Duration) { return ++with > 0; }).ok());
  EXPECT_GE(with, without + 2);
  int left = with / 2;
  const auto until = [&](absl::Duration) { return left-- > 0; };
  EXPECT_TRUE(absl::IsCancelled(Examine(*store, APremises(), until).status()));
  EXPECT_EQ(left, -1);
}

// What goes while it is looked at is not missed, at whatever moment it goes.
TEST_F(ExaminationTest, AJobMayBeDeletedMeanwhile) {
  auto store = Open().value();
  bool deleted = true;
  for (int moment = 1; deleted; ++moment) {
    CommitOutput(*store);
    deleted = false;
    int rests = 0;
    const auto removing = [&](absl::Duration) {
      if (++rests != moment) return true;
      fs::remove_all(dir_ + "/out-a");
      Change deletion{.deleted = "a"};
      deletion.events = {{.job = "a", .from = Job::STATE_SUCCEEDED}};
      deleted = store->Commit(deletion).ok();
      return deleted;
    };
    EXPECT_THAT(ChecksThatFound(*store, removing), ElementsAre()) << moment;
    ASSERT_LT(moment, 100);
  }
}

TEST_F(ExaminationTest, TheExaminerSaysWhatItFindsInTheMetrics) {
  auto store = Open().value();
  CommitOutput(*store);
  Metrics metrics;
  const auto line = [&](const std::string& name, const std::string& value) {
    for (int i = 0; i < 500; ++i) {
      if (absl::StrContains(metrics.Text(), absl::StrCat("\n", name, " ", value, "\n")))
        return true;
      absl::SleepFor(absl::Milliseconds(10));
    }
    return false;
  };
  Examiner examiner(*store, APremises(), metrics, absl::Milliseconds(20));
  EXPECT_TRUE(line("snug_store_findings{check=\"outputs\"}", "0"));
  WriteText(dir_ + "/out-a/adapter_model.safetensors", "other");
  EXPECT_TRUE(line("snug_store_findings{check=\"outputs\"}", "1"));
  EXPECT_THAT(metrics.Text(), HasSubstr("snug_store_examined_timestamp_seconds"));
}

}  // namespace
}  // namespace snug::server
