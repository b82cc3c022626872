#!/bin/sh
# Runs the release's own mysql-test in a build tree: JOBS [TEST ...]. Without tests: what the series touches, in the main
# suite by pattern, and some suites as a whole.
jobs=$1
shift
status=0

mtr() {
    perl ./mysql-test-run.pl --mem --parallel="$jobs" --force --max-test-fail=0 --retry=1 \
        --testcase-timeout=10 --suite-timeout=600 --skip-rpl "$@" || status=$?
}

# The runner refuses to start without this program, which belongs to the unit tests.
mkdir -p ../tests
test -e ../tests/mysql_client_test || printf '#!/bin/sh\nexit 1\n' >../tests/mysql_client_test
chmod +x ../tests/mysql_client_test
# What an interrupted run left on the RAM disk.
trap 'rm -rf "$(readlink -f var)" var' EXIT

if [ $# -gt 0 ]; then
    mtr "$@"
else
    mtr --suite=main --do-test='^(func_|json|gis|group_|distinct|having|join|subselect|derived|union|order_by|partition|ctype_|heap|check_constraint|trigger|insert|update|multi_update|delete|select|null|range|key|explain|opt_trace|win|cte_|view|long_unique|default|type_|innodb_icp|myisam_icp|rowid_filter|show_|sp$|sp-|create|alter_table|max_min|count_distinct|single_|limit|replace|sum_distinct|table_elim|temp_table|user_var|variables|merge|myisam$|mrr|mdev|olap|outfile|ps$|ps_|query_|greedy|index_|innodb_ext|intersect|except|row|selectivity|semi|split|stat_tables|std|strings|tmp)'
    mtr --suite=vcol,period,heap,json,gcol,versioning,sql_sequence,parts,maria,handler,innodb_gis,compat/oracle
fi
exit $status
