"""The functions that SQL over snapshots may call, for each of its two policies.

A *statement* (``store.sql``) may call what depends on its arguments alone. Functions that read files or settings,
reveal the user, the session or the catalog, wait, leave something behind, or run code are left out. Memory use is no
criterion: anyone who can write a statement can request any number of rows.

A *condition* (``where=``, ``history.first``, a viewer's search box) may only call functions whose result is about the
size of their arguments. Also left out are those that produce rows or lists of any length (``range``), repeat text
(``repeat``, ``lpad``, ``replace``), compare texts in quadratic time (``levenshtein``) or change from call to call
(``random``). Lambdas are not allowed, because nested lambdas multiply.

The tests list every function of the installed DuckDB and Spark and fail on those that are not decided, so a new version
does not silently add functions.
"""

from __future__ import annotations

_BOTH = """
    abs acos acosh aggregate any_value approx_count_distinct approx_top_k array_agg array_append array_contains
    array_distinct array_intersect array_position array_prepend array_sort ascii asin asinh assert_true atan atan2
    atanh avg base64 bin bit_and bit_count bit_length bit_or bit_xor bool_and bool_or cardinality cbrt ceil ceiling
    char_length character_length chr concat concat_ws contains corr cos cosh cot count count_if covar_pop covar_samp
    cume_dist current_date date_add date_diff date_part date_sub date_trunc datediff datepart day dayname dayofmonth
    dayofweek dayofyear decode degrees dense_rank element_at encode exp factorial filter first first_value flatten
    floor from_json greatest hash hex hour if instr isnan jaro_winkler_similarity json_array_length kurtosis lag
    last last_day last_value lcase lead least left len length levenshtein listagg ln log log10 log2 lower lpad ltrim
    make_date make_time make_timestamp map map_concat map_entries map_from_entries map_keys map_values max max_by
    md5 mean median min min_by minute mod mode month monthname now nth_value ntile nullif octet_length overlay
    percent_rank pi position pow power printf quarter radians random range rank reduce regexp_extract
    regexp_extract_all regexp_replace regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx
    regr_sxy regr_syy repeat replace reverse right round row_number rpad rtrim second sha1 sign sin sinh skewness
    split split_part sqrt st_asbinary st_geomfromwkb stddev stddev_pop stddev_samp string_agg substr substring sum
    tan tanh time_bucket to_binary to_json to_timestamp translate trim trunc typeof ucase unhex upper url_decode
    url_encode uuid var_pop var_samp variance weekday weekofyear year
"""

_DUCKDB = """
    !__postfix add age ago alias apply approx_quantile arbitrary arg_max arg_max_null arg_max_nulls_last arg_min
    arg_min_null arg_min_nulls_last argmax argmin array_aggr array_aggregate array_apply array_cat array_concat
    array_cosine_distance array_cosine_similarity array_cross_product array_distance array_dot_product array_extract
    array_filter array_grade_up array_has array_has_all array_has_any array_indexof array_inner_product array_length
    array_negative_dot_product array_negative_inner_product array_pop_back array_pop_front array_push_back
    array_push_front array_reduce array_resize array_reverse array_reverse_sort array_select array_slice
    array_to_json array_to_string array_transform array_unique array_value array_where array_zip bar binom
    bit_position bitstring bitstring_agg cast_to_type century count_star countif current_localtime
    current_localtimestamp damerau_levenshtein datesub datetrunc days_in_month decade divide editdist3 ends_with
    entropy enum_code enum_first enum_last enum_range enum_range_boundary epoch epoch_ms epoch_ns epoch_us
    equi_width_bins era error even favg fdiv fill fmod format format_bytes formatreadabledecimalsize
    formatreadablesize from_base64 from_binary from_hex from_json_strict fsum gamma gcd gen_random_uuid
    generate_series generate_subscripts geomean geometric_mean get_bit get_current_time get_current_timestamp
    get_type grade_up greatest_common_divisor group_concat hamming histogram histogram_exact
    hive_partition_component ilike_escape invoke is_histogram_other_bin isfinite isinf isodow isoyear jaccard
    jaro_similarity json json_array json_contains json_deep_merge json_exists json_extract json_extract_path
    json_extract_path_text json_extract_string json_group_array json_group_object json_group_structure json_insert
    json_keys json_merge_patch json_merge_patch_diff json_normalize json_object json_pretty json_quote json_remove
    json_replace json_set json_strip_nulls json_structure json_transform json_transform_strict json_type json_valid
    json_value julian kahan_sum kurtosis_pop lcm least_common_multiple left_grapheme length_grapheme lgamma
    like_escape list list_aggr list_aggregate list_any_value list_append list_apply list_approx_count_distinct
    list_avg list_bit_and list_bit_or list_bit_xor list_bool_and list_bool_or list_cat list_concat list_contains
    list_cosine_distance list_cosine_similarity list_count list_distance list_distinct list_dot_product list_element
    list_entropy list_extract list_filter list_first list_grade_up list_has list_has_all list_has_any list_histogram
    list_indexof list_inner_product list_intersect list_kurtosis list_kurtosis_pop list_last list_mad list_max
    list_median list_min list_mode list_negative_dot_product list_negative_inner_product list_pack list_position
    list_prepend list_product list_reduce list_resize list_reverse list_reverse_sort list_select list_sem
    list_skewness list_slice list_sort list_stddev_pop list_stddev_samp list_string_agg list_sum list_transform
    list_unique list_value list_var_pop list_var_samp list_where list_zip lttb mad make_timestamp_ms
    make_timestamp_ns make_timestamptz make_type map_contains map_contains_entry map_contains_value map_extract
    map_extract_value md5_number md5_number_lower md5_number_upper microsecond millennium millisecond mismatches
    multiply nanosecond nextafter nfc_normalize normalized_interval not_ilike_escape not_like_escape ord
    parse_dirname parse_dirpath parse_filename parse_formatted_bytes parse_path path_join pg_size_pretty pg_typeof
    prefix product quantile quantile_cont quantile_disc rank_dense regexp_escape regexp_full_match regexp_matches
    regexp_split_to_array regexp_split_to_table replace_type reservoir_quantile right_grapheme round_even
    roundbankers row row_to_json sem set_bit sha256 signbit st_asgeojson st_astext st_aswkb st_aswkt st_crs
    st_geomfromgeojson st_intersects_extent st_setcrs starts_with str_split str_split_regex strftime string_split
    string_split_regex string_to_array strip_accents strlen strpos strptime struct_concat struct_contains
    struct_extract struct_extract_at struct_has struct_indexof struct_insert struct_keys struct_pack struct_position
    struct_update struct_values substring_grapheme subtract suffix sum_no_overflow sumkahan switch timezone
    timezone_hour timezone_minute to_base to_base64 to_centuries to_days to_decades to_hex to_hours to_microseconds
    to_millennia to_milliseconds to_minutes to_months to_quarters to_seconds to_weeks to_years today
    transaction_timestamp try_strptime unbin unicode union_extract union_tag union_value unlist unnest unpivot_list
    uuid_extract_timestamp uuid_extract_version uuidv4 uuidv7 variant_array_length variant_contains variant_exists
    variant_extract variant_extract_string variant_group_array variant_group_object variant_keys variant_type
    variant_typeof vertex_extract wavg week weighted_avg xor yearweek
"""

_SPARK = """
    add_months aes_decrypt aes_encrypt and any approx_percentile approx_top_k_accumulate approx_top_k_combine
    approx_top_k_estimate array array_compact array_except array_insert array_join array_max array_min array_remove
    array_repeat array_size array_union arrays_overlap arrays_zip between bigint binary bit_get bitmap_and_agg
    bitmap_bit_position bitmap_bucket_number bitmap_construct_agg bitmap_count bitmap_or_agg boolean bround btrim
    case cast char coalesce collate collation collect_list collect_set collect_union conv convert_timezone
    count_min_sketch counter_diff crc32 csc curdate current_time current_timestamp current_timezone date date_format
    date_from_unix_date dateadd decimal div double e elt endswith equal_null every exists explode explode_outer
    expm1 extract find_in_set float forall format_number format_string from_base32 from_csv from_unixtime
    from_utc_timestamp get get_json_object getbit grouping grouping_id histogram_numeric hll_sketch_agg
    hll_sketch_estimate hll_union hll_union_agg hmac hypot ifnull ilike in initcap inline inline_outer int
    is_valid_utf8 is_valid_variant is_variant_null isnotnull isnull json_object_keys json_tuple kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double kll_sketch_agg_float
    kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float kll_sketch_get_quantile_bigint
    kll_sketch_get_quantile_double kll_sketch_get_quantile_float kll_sketch_get_rank_bigint
    kll_sketch_get_rank_double kll_sketch_get_rank_float kll_sketch_merge_bigint kll_sketch_merge_double
    kll_sketch_merge_float kll_sketch_to_string_bigint kll_sketch_to_string_double kll_sketch_to_string_float like
    localtime localtimestamp locate log1p luhn_check make_dt_interval make_interval make_timestamp_ltz
    make_timestamp_ntz make_valid_utf8 make_ym_interval map_contains_key map_filter map_from_arrays map_zip_with
    mask monotonically_increasing_id months_between named_struct nanvl negative next_day not nullifzero nvl nvl2 or
    parse_json parse_url percentile percentile_approx percentile_cont percentile_disc pmod posexplode
    posexplode_outer positive quote raise_error rand randn randstr regexp regexp_count regexp_instr regexp_like
    regexp_substr rint rlike schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec sentences
    sequence session_window sha sha2 shiftleft shiftright shiftrightunsigned shuffle signum size slice smallint some
    sort_array soundex space st_geogfromwkb st_setsrid st_srid stack startswith std str_to_map string struct
    substring_index theta_difference theta_intersection theta_intersection_agg theta_sketch_agg
    theta_sketch_estimate theta_union theta_union_agg time time_diff time_from_micros time_from_millis
    time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc timestamp timestamp_micros
    timestamp_millis timestamp_nanos timestamp_seconds tinyint to_base32 to_char to_csv to_date to_number to_time
    to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object transform
    transform_keys transform_values try_add try_aes_decrypt try_avg try_divide try_element_at try_make_interval
    try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz try_mod try_multiply try_parse_json
    try_parse_url try_subtract try_sum try_to_binary try_to_date try_to_number try_to_time try_to_timestamp
    try_url_decode try_validate_utf8 try_variant_array_append try_variant_get try_variant_insert try_variant_set
    tuple_difference_double tuple_difference_integer tuple_difference_theta_double tuple_difference_theta_integer
    tuple_intersection_agg_double tuple_intersection_agg_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_agg_double tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer
    tuple_union_agg_double tuple_union_agg_integer tuple_union_double tuple_union_integer tuple_union_theta_double
    tuple_union_theta_integer unbase64 uniform unix_date unix_micros unix_millis unix_nanos unix_seconds
    unix_timestamp validate_utf8 variant_array_append variant_delete variant_explode variant_explode_outer
    variant_get variant_insert variant_set variant_strip_nulls vector_avg vector_cosine_similarity
    vector_inner_product vector_l2_distance vector_norm vector_normalize vector_sum when width_bucket window
    window_time xxhash64 zeroifnull zip_with
"""

DUCKDB_FUNCTIONS = frozenset(f"{_BOTH} {_DUCKDB}".split())
"""Functions allowed in DuckDB, in lower case. Operators, whose names have no letters, are all allowed."""

SPARK_FUNCTIONS = frozenset(f"{_BOTH} {_SPARK}".split())
"""Functions allowed in Spark, in lower case."""

ROWS_FROM_ARGUMENTS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "repeat"})
"""DuckDB's table functions that make rows from their arguments alone."""

_SPARK_ROWS = """
    explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer range stack variant_explode
    variant_explode_outer
"""
SPARK_ROWS_FROM_ARGUMENTS = frozenset(_SPARK_ROWS.split())
"""The same for Spark."""

_OPERATORS = """
    + - * / // % ** ^ & | ~ << >> @ && @> <@ ^@ = != <> < <= > >= ~~ !~~ ~~* !~~* ~~~ || ->>
    like_escape ilike_escape not_like_escape not_ilike_escape !__postfix
"""
_NUMBERS = """
    abs add subtract multiply divide fdiv fmod mod ceil ceiling floor round round_even trunc sign signbit sqrt cbrt exp
    ln log log2 log10 pow power pi degrees radians sin cos tan asin acos atan atan2 sinh cosh tanh gcd lcm even xor
    greatest least isnan isinf isfinite bit_count hash factorial
"""
_TEXT = """
    lower upper lcase ucase trim ltrim rtrim length len strlen char_length character_length octet_length bit_length
    left right substring substr reverse contains prefix suffix starts_with ends_with strpos instr position concat
    split_part split string_split str_split string_to_array ascii unicode ord translate
    regexp_matches regexp_full_match regexp_extract md5 sha1 sha256 encode decode strip_accents nfc_normalize
"""
_TIME = """
    now today current_date get_current_timestamp get_current_time transaction_timestamp current_localtime
    current_localtimestamp age date_add date_sub date_diff datediff datesub date_part datepart date_trunc datetrunc
    time_bucket year month day hour minute second millisecond microsecond nanosecond quarter week weekday weekofyear
    dayofweek dayofmonth dayofyear isodow isoyear yearweek last_day monthname dayname century decade millennium era
    epoch epoch_ms epoch_us epoch_ns julian days_in_month make_date make_time make_timestamp make_timestamptz
    make_timestamp_ms make_timestamp_ns to_timestamp strftime strptime try_strptime timezone timezone_hour
    timezone_minute to_years to_months to_weeks to_days to_hours to_minutes to_seconds to_milliseconds to_microseconds
"""
_NULLS_AND_TYPES = "ifnull nullif if typeof pg_typeof"
_NESTED = """
    list_value list_contains list_has array_contains array_has list_has_any list_has_all array_has_any array_has_all
    list_position list_indexof array_position list_extract list_element array_extract array_length list_count list_sum
    list_min list_max list_avg list_first list_last list_any_value list_bool_and list_bool_or list_distinct list_unique
    list_sort list_reverse_sort list_reverse list_slice array_slice flatten
    struct_pack struct_extract struct_extract_at row struct_keys struct_values
    map map_keys map_values map_entries map_extract map_extract_value map_contains map_contains_value element_at
    cardinality
"""

READ_AT_PATH = frozenset(
    {"->>", "json_extract", "json_extract_string", "json_array_length", "json_type", "json_exists"}
)
"""Functions that read JSON at a path. In a condition the path must be a constant without wildcards, which multiply."""

CONCATENATING = frozenset({"||", "concat"})
"""Functions whose result is as long as all of their arguments together."""

CONSTRUCTING = frozenset({"list_value", "row", "struct_pack", "map"})
"""Functions that put their arguments into one value."""

SPLITTING = frozenset({"split", "string_split", "str_split", "string_to_array"})
"""Functions that make a list of a text, which may take 16 times as much memory."""

MATCHING = frozenset({"regexp_matches", "regexp_full_match", "regexp_extract"})
"""Functions with a regular expression as their second argument, also as operators: ``~`` and SIMILAR TO."""

CONDITION_FUNCTIONS = READ_AT_PATH.union(
    ["json_valid"], *(names.split() for names in (_OPERATORS, _NUMBERS, _TEXT, _TIME, _NULLS_AND_TYPES, _NESTED))
)
"""Functions and operators that a condition may call, by DuckDB's names."""

CONDITION_VALUES = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Names that are written like a column but are SQL values."""

_PLAIN_TYPES = """
    boolean bool tinyint smallint integer int bigint long short hugeint utinyint usmallint uinteger ubigint uhugeint
    int1 int2 int4 int8 float real double float4 float8 decimal numeric varchar text string char blob bytea binary uuid
    date time timestamp datetime timestamptz timestamp_s timestamp_ms timestamp_us timestamp_ns interval
"""
CONDITION_TYPES = frozenset(["timestamp with time zone", "time with time zone", *_PLAIN_TYPES.split()])
"""Types that a condition may cast to: no arrays, whose length a cast can invent, and no types of the catalog."""
