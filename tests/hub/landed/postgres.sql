-- The database of a hub, written by tests/support/landed_hub.py.
-- commit: 8448a83aaf52ac7219d9cdc10bc2307edca8d050
-- revision: 0014

CREATE TABLE public.access_tokens (
    id bigint NOT NULL,
    account_id bigint NOT NULL,
    name character varying(60) NOT NULL,
    digest character varying(64) NOT NULL,
    scopes character varying(200) NOT NULL,
    packages text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    used_at timestamp with time zone
);


--
-- Name: access_tokens_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.access_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: access_tokens_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.access_tokens_id_seq OWNED BY public.access_tokens.id;


--
-- Name: account_identities; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.account_identities (
    id bigint NOT NULL,
    account_id bigint NOT NULL,
    issuer character varying(300) NOT NULL,
    subject character varying(255) NOT NULL,
    email character varying(254) NOT NULL,
    gave_admin boolean NOT NULL,
    linked_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone NOT NULL
);


--
-- Name: account_identities_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.account_identities_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: account_identities_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.account_identities_id_seq OWNED BY public.account_identities.id;


--
-- Name: account_sessions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.account_sessions (
    digest character varying(64) NOT NULL,
    account_id bigint NOT NULL,
    browser character varying(100) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    used_at timestamp with time zone NOT NULL,
    confirmed_at timestamp with time zone
);


--
-- Name: accounts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.accounts (
    id bigint NOT NULL,
    owner_id bigint NOT NULL,
    name character varying(39) NOT NULL,
    password character varying(200) NOT NULL,
    is_admin boolean NOT NULL,
    created_at timestamp with time zone NOT NULL,
    disabled_at timestamp with time zone
);


--
-- Name: accounts_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.accounts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: accounts_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.accounts_id_seq OWNED BY public.accounts.id;


--
-- Name: alembic_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);


--
-- Name: audit_events; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.audit_events (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    actor character varying(100) NOT NULL,
    action character varying(40) NOT NULL,
    subject character varying(200) NOT NULL,
    account character varying(100) NOT NULL,
    address character varying(64) NOT NULL
);


--
-- Name: audit_events_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.audit_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: audit_events_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.audit_events_id_seq OWNED BY public.audit_events.id;


--
-- Name: device_sign_ins; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.device_sign_ins (
    digest character varying(64) NOT NULL,
    code_digest character varying(64) NOT NULL,
    account_id bigint,
    state character varying(20) NOT NULL,
    document text NOT NULL,
    address character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    asked_at timestamp with time zone
);


--
-- Name: hub_processes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.hub_processes (
    id character varying(32) NOT NULL,
    expires_at double precision NOT NULL,
    address character varying(300)
);


--
-- Name: invitations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.invitations (
    digest character varying(64) NOT NULL,
    created_by character varying(100) NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


--
-- Name: kept_rollout_parts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.kept_rollout_parts (
    file_id character varying(16) NOT NULL,
    number integer NOT NULL,
    data bytea NOT NULL
);


--
-- Name: kept_rollouts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.kept_rollouts (
    id character varying(16) NOT NULL,
    owner character varying(100) NOT NULL,
    name character varying(80) NOT NULL,
    size bigint NOT NULL,
    lines integer NOT NULL,
    index bytea NOT NULL,
    kept_at timestamp with time zone NOT NULL
);


--
-- Name: maintainers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.maintainers (
    package_id bigint NOT NULL,
    principal character varying(100) NOT NULL
);


--
-- Name: match_boards; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.match_boards (
    id bigint NOT NULL,
    package character varying(100) NOT NULL,
    version character varying(60) NOT NULL,
    sha256 character varying(64) NOT NULL,
    environment character varying(300) NOT NULL,
    split character varying(300) NOT NULL,
    seats text NOT NULL,
    numbers integer NOT NULL,
    changes integer NOT NULL,
    rated integer NOT NULL,
    seat_advantage double precision,
    seat_low double precision,
    seat_high double precision,
    draw_share double precision,
    process character varying(32)
);


--
-- Name: match_boards_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.match_boards_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: match_boards_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.match_boards_id_seq OWNED BY public.match_boards.id;


--
-- Name: match_entrants; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.match_entrants (
    id bigint NOT NULL,
    key character varying(22) NOT NULL,
    board_id bigint NOT NULL,
    principal character varying(100) NOT NULL,
    by_publisher boolean NOT NULL,
    is_script boolean NOT NULL,
    model character varying(200) NOT NULL,
    harness character varying(200) NOT NULL,
    declared text NOT NULL,
    registered integer NOT NULL,
    state character varying(10) NOT NULL,
    voided integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deadline timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    rating double precision,
    rating_low double precision,
    rating_high double precision,
    component integer,
    wins integer NOT NULL,
    draws integer NOT NULL,
    losses integer NOT NULL,
    removed_at timestamp with time zone,
    removed_by character varying(100),
    removed_reason character varying(500),
    still_counts boolean NOT NULL
);


--
-- Name: match_entrants_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.match_entrants_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: match_entrants_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.match_entrants_id_seq OWNED BY public.match_entrants.id;


--
-- Name: match_log; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.match_log (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    entrant_id bigint NOT NULL,
    by character varying(100) NOT NULL,
    reason character varying(500) NOT NULL
);


--
-- Name: match_log_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.match_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: match_log_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.match_log_id_seq OWNED BY public.match_log.id;


--
-- Name: matches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.matches (
    id bigint NOT NULL,
    key character varying(22) NOT NULL,
    board_id bigint NOT NULL,
    number integer NOT NULL,
    first_id bigint NOT NULL,
    second_id bigint NOT NULL,
    state character varying(10) NOT NULL,
    process character varying(32),
    score double precision,
    first_reward double precision,
    second_reward double precision,
    first_end character varying(100),
    second_end character varying(100),
    commitment character varying(64) NOT NULL,
    opening text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone
);


--
-- Name: matches_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.matches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: matches_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.matches_id_seq OWNED BY public.matches.id;


--
-- Name: organization_invitations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.organization_invitations (
    organization_id bigint NOT NULL,
    name character varying(39) NOT NULL,
    account_id bigint,
    role character varying(10) NOT NULL,
    invited_by character varying(100) NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


--
-- Name: organization_members; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.organization_members (
    organization_id bigint NOT NULL,
    account_id bigint NOT NULL,
    role character varying(10) NOT NULL,
    joined_at timestamp with time zone NOT NULL
);


--
-- Name: organizations; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.organizations (
    id bigint NOT NULL,
    owner_id bigint NOT NULL,
    name character varying(39) NOT NULL,
    public boolean NOT NULL,
    created_at timestamp with time zone NOT NULL
);


--
-- Name: organizations_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.organizations_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: organizations_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.organizations_id_seq OWNED BY public.organizations.id;


--
-- Name: owners; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.owners (
    id bigint NOT NULL,
    name character varying(39) NOT NULL,
    skeleton character varying(39) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    retired_at timestamp with time zone
);


--
-- Name: owners_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.owners_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: owners_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.owners_id_seq OWNED BY public.owners.id;


--
-- Name: package_search; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.package_search (
    package_id bigint NOT NULL,
    head tsvector NOT NULL,
    document tsvector NOT NULL
)
WITH (toast_tuple_target='128');
ALTER TABLE ONLY public.package_search ALTER COLUMN head SET STORAGE MAIN;
ALTER TABLE ONLY public.package_search ALTER COLUMN document SET STORAGE EXTERNAL;


--
-- Name: package_tags; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.package_tags (
    tag character varying(60) NOT NULL,
    package_id bigint NOT NULL
);


--
-- Name: packages; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.packages (
    id bigint NOT NULL,
    owner_id bigint NOT NULL,
    owner character varying(39) NOT NULL,
    name character varying(60) NOT NULL,
    skeleton character varying(60) NOT NULL,
    distribution character varying(100) NOT NULL,
    latest character varying(60) NOT NULL,
    summary text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    private boolean DEFAULT false NOT NULL
);


--
-- Name: packages_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.packages_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: packages_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.packages_id_seq OWNED BY public.packages.id;


--
-- Name: pending_sign_ins; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.pending_sign_ins (
    digest character varying(64) NOT NULL,
    browser character varying(64) NOT NULL,
    purpose character varying(20) NOT NULL,
    account_id bigint,
    document text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);


--
-- Name: publisher_keys; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.publisher_keys (
    owner_id bigint NOT NULL,
    key character varying(60) NOT NULL,
    added_at timestamp with time zone NOT NULL
);


--
-- Name: rate_counts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.rate_counts (
    key character varying(40) NOT NULL,
    period bigint NOT NULL,
    count integer NOT NULL,
    expires_at double precision NOT NULL
);


--
-- Name: readers; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.readers (
    package_id bigint NOT NULL,
    principal character varying(100) NOT NULL
);


--
-- Name: result_boards; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.result_boards (
    id bigint NOT NULL,
    package character varying(100) NOT NULL,
    version character varying(60) NOT NULL,
    sha256 character varying(64) NOT NULL,
    environment character varying(300) NOT NULL,
    split character varying(300) NOT NULL,
    level character varying(10) NOT NULL,
    lowest double precision,
    highest double precision,
    tasks text NOT NULL,
    difficulty text NOT NULL
);


--
-- Name: result_boards_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.result_boards_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: result_boards_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.result_boards_id_seq OWNED BY public.result_boards.id;


--
-- Name: result_episodes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.result_episodes (
    run_id bigint NOT NULL,
    place integer NOT NULL,
    task character varying(1000) NOT NULL,
    task_index bigint NOT NULL,
    sample integer NOT NULL,
    seed bigint,
    state character varying(10) NOT NULL,
    attempts integer NOT NULL,
    reward double precision,
    value double precision,
    "end" character varying(100),
    steps bigint,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    input_tokens bigint,
    output_tokens bigint,
    process character varying(32)
);


--
-- Name: result_lines; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.result_lines (
    id bigint NOT NULL,
    board_id bigint NOT NULL,
    principal character varying(100) NOT NULL,
    model character varying(200) NOT NULL,
    harness character varying(200) NOT NULL,
    mean double precision NOT NULL,
    document text NOT NULL
);


--
-- Name: result_lines_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.result_lines_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: result_lines_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.result_lines_id_seq OWNED BY public.result_lines.id;


--
-- Name: result_log; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.result_log (
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    kind character varying(10) NOT NULL,
    run_id bigint NOT NULL,
    by character varying(100) NOT NULL,
    reason character varying(500) NOT NULL,
    before double precision,
    after double precision
);


--
-- Name: result_log_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.result_log_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: result_log_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.result_log_id_seq OWNED BY public.result_log.id;


--
-- Name: result_runs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.result_runs (
    id bigint NOT NULL,
    key character varying(22) NOT NULL,
    board_id bigint NOT NULL,
    principal character varying(100) NOT NULL,
    by_publisher boolean NOT NULL,
    number integer NOT NULL,
    model character varying(200) NOT NULL,
    harness character varying(200) NOT NULL,
    declared text NOT NULL,
    tasks integer NOT NULL,
    samples integer NOT NULL,
    success_at double precision NOT NULL,
    lowest double precision,
    highest double precision,
    state character varying(10) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    deadline timestamp with time zone,
    ended_at timestamp with time zone,
    commitment character varying(64),
    opening text,
    digest character varying(64),
    reruns integer NOT NULL,
    figures text,
    per_task text,
    receipt text,
    removed_at timestamp with time zone,
    removed_by character varying(100),
    removed_reason character varying(500),
    rollouts character varying(64)
);


--
-- Name: result_runs_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.result_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: result_runs_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.result_runs_id_seq OWNED BY public.result_runs.id;


--
-- Name: training_batches; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.training_batches (
    run_id bigint NOT NULL,
    number integer NOT NULL,
    attempt integer NOT NULL,
    digest character varying(64) NOT NULL,
    points integer NOT NULL,
    data bytea NOT NULL
);


--
-- Name: training_rollouts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.training_rollouts (
    run_id bigint NOT NULL,
    number integer NOT NULL,
    digest character varying(64) NOT NULL,
    step bigint NOT NULL,
    environment character varying(100) NOT NULL,
    task character varying(100) NOT NULL,
    reward character varying(80) NOT NULL,
    outcome character varying(60) NOT NULL,
    data bytea NOT NULL
);


--
-- Name: training_runs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.training_runs (
    id bigint NOT NULL,
    key character varying(22) NOT NULL,
    principal character varying(100) NOT NULL,
    sender_key character varying(100) NOT NULL,
    name character varying(120) NOT NULL,
    public boolean NOT NULL,
    trainer character varying(120) NOT NULL,
    config text NOT NULL,
    environments text NOT NULL,
    steps bigint,
    state character varying(10) NOT NULL,
    reason character varying(500) NOT NULL,
    attempt character varying(100) NOT NULL,
    attempts text NOT NULL,
    next_batch integer NOT NULL,
    points bigint NOT NULL,
    "values" bigint NOT NULL,
    size bigint NOT NULL,
    metrics text NOT NULL,
    last_step bigint,
    dropped bigint NOT NULL,
    rollouts integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    heard_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    summary bytea,
    summary_upto integer NOT NULL,
    summary_values bigint NOT NULL
);


--
-- Name: training_runs_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.training_runs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: training_runs_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.training_runs_id_seq OWNED BY public.training_runs.id;


--
-- Name: verified_attempts; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.verified_attempts (
    run_id bigint NOT NULL,
    place integer NOT NULL,
    attempt integer NOT NULL,
    ending character varying(500) NOT NULL,
    output text NOT NULL
);


--
-- Name: verified_calls; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.verified_calls (
    run_id bigint NOT NULL,
    place integer NOT NULL,
    attempt integer NOT NULL,
    number integer NOT NULL,
    request character varying(64) NOT NULL,
    answer character varying(64) NOT NULL,
    status integer NOT NULL,
    input_tokens bigint,
    output_tokens bigint
);


--
-- Name: verified_runs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.verified_runs (
    run_id bigint NOT NULL,
    harness character varying(300) NOT NULL,
    harness_sha256 character varying(64) NOT NULL,
    host character varying(300) NOT NULL,
    model character varying(200) NOT NULL,
    base_url character varying(1000),
    sealed text,
    most_tokens bigint NOT NULL,
    process character varying(32)
);


--
-- Name: versions; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.versions (
    id bigint NOT NULL,
    package_id bigint NOT NULL,
    version character varying(60) NOT NULL,
    filename character varying(255) NOT NULL,
    sha256 character varying(64) NOT NULL,
    size bigint NOT NULL,
    metadata_sha256 character varying(64) NOT NULL,
    requires_python character varying(200),
    manifest text NOT NULL,
    card text NOT NULL,
    signed text,
    validation text,
    uploaded_by character varying(100) NOT NULL,
    uploaded_at timestamp with time zone NOT NULL,
    yanked character varying(500),
    changed_at timestamp with time zone DEFAULT '1970-01-01 00:00:00+00'::timestamp with time zone NOT NULL
);


--
-- Name: versions_id_seq; Type: SEQUENCE; Schema: public; Owner: -
--

CREATE SEQUENCE public.versions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;


--
-- Name: versions_id_seq; Type: SEQUENCE OWNED BY; Schema: public; Owner: -
--

ALTER SEQUENCE public.versions_id_seq OWNED BY public.versions.id;


--
-- Name: access_tokens id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.access_tokens ALTER COLUMN id SET DEFAULT nextval('public.access_tokens_id_seq'::regclass);


--
-- Name: account_identities id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_identities ALTER COLUMN id SET DEFAULT nextval('public.account_identities_id_seq'::regclass);


--
-- Name: accounts id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts ALTER COLUMN id SET DEFAULT nextval('public.accounts_id_seq'::regclass);


--
-- Name: audit_events id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit_events ALTER COLUMN id SET DEFAULT nextval('public.audit_events_id_seq'::regclass);


--
-- Name: match_boards id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_boards ALTER COLUMN id SET DEFAULT nextval('public.match_boards_id_seq'::regclass);


--
-- Name: match_entrants id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_entrants ALTER COLUMN id SET DEFAULT nextval('public.match_entrants_id_seq'::regclass);


--
-- Name: match_log id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_log ALTER COLUMN id SET DEFAULT nextval('public.match_log_id_seq'::regclass);


--
-- Name: matches id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches ALTER COLUMN id SET DEFAULT nextval('public.matches_id_seq'::regclass);


--
-- Name: organizations id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations ALTER COLUMN id SET DEFAULT nextval('public.organizations_id_seq'::regclass);


--
-- Name: owners id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owners ALTER COLUMN id SET DEFAULT nextval('public.owners_id_seq'::regclass);


--
-- Name: packages id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.packages ALTER COLUMN id SET DEFAULT nextval('public.packages_id_seq'::regclass);


--
-- Name: result_boards id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_boards ALTER COLUMN id SET DEFAULT nextval('public.result_boards_id_seq'::regclass);


--
-- Name: result_lines id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_lines ALTER COLUMN id SET DEFAULT nextval('public.result_lines_id_seq'::regclass);


--
-- Name: result_log id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_log ALTER COLUMN id SET DEFAULT nextval('public.result_log_id_seq'::regclass);


--
-- Name: result_runs id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_runs ALTER COLUMN id SET DEFAULT nextval('public.result_runs_id_seq'::regclass);


--
-- Name: training_runs id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_runs ALTER COLUMN id SET DEFAULT nextval('public.training_runs_id_seq'::regclass);


--
-- Name: versions id; Type: DEFAULT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.versions ALTER COLUMN id SET DEFAULT nextval('public.versions_id_seq'::regclass);


--
-- Data for Name: access_tokens; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.access_tokens (id, account_id, name, digest, scopes, packages, created_at, expires_at, used_at) VALUES (1, 2, 'a program', '1a0d0a7940905235702a8c6e48be9f9d6e16071afa22e0c19fb88f39b1572665', 'account publish read results run training', '', '2026-11-28 18:56:47.103192+00', NULL, '2026-11-28 18:56:47.863234+00');
INSERT INTO public.access_tokens (id, account_id, name, digest, scopes, packages, created_at, expires_at, used_at) VALUES (2, 3, 'test', 'ec28b47ba31397dd3436ebf6995e35928bf5981c96e35400a6fa75fcaeea713e', 'account publish read results run training', '', '2026-11-28 18:56:47.546199+00', '2026-11-29 18:56:47.546199+00', '2026-11-28 18:56:48.46124+00');
INSERT INTO public.access_tokens (id, account_id, name, digest, scopes, packages, created_at, expires_at, used_at) VALUES (3, 1, 'test', '76f411932d378d045bb11923dd2ad4169e2bbec099e12503ac0e6ca7c5750eb0', 'admin', '', '2026-11-28 18:56:47.818444+00', '2026-11-29 18:56:47.818444+00', '2026-11-28 18:56:48.388674+00');


--
-- Data for Name: account_identities; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.account_identities (id, account_id, issuer, subject, email, gave_admin, linked_at, used_at) VALUES (1, 5, 'http://127.0.0.1:46027', 'dora-at-provider', 'dora@example.org', false, '2026-11-28 18:56:48.839075+00', '2026-11-28 18:56:48.839075+00');


--
-- Data for Name: account_sessions; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.account_sessions (digest, account_id, browser, created_at, used_at, confirmed_at) VALUES ('b918b22a1581fedd39058065f00e6aad35bd561f20257151131a1ddcd21803de', 2, 'a browser', '2026-11-28 18:56:49.81561+00', '2026-11-28 18:56:49.81561+00', NULL);
INSERT INTO public.account_sessions (digest, account_id, browser, created_at, used_at, confirmed_at) VALUES ('d53e9fe92acbe5458081e437f334d8c6dc2395616bce214a6eb7abaf82677916', 2, 'testclient', '2026-11-28 18:56:49.647948+00', '2026-11-28 18:56:49.647948+00', NULL);
INSERT INTO public.account_sessions (digest, account_id, browser, created_at, used_at, confirmed_at) VALUES ('d9c364ec5c70e82c9d739e307039e6e244c1e8b0aa4b5d41e1e8ff68f5d9e95d', 5, 'testclient', '2026-11-28 18:56:48.865589+00', '2026-11-28 18:56:48.865589+00', NULL);


--
-- Data for Name: accounts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.accounts (id, owner_id, name, password, is_admin, created_at, disabled_at) VALUES (1, 1, 'root', '$argon2id$v=19$m=65536,t=3,p=4$JzvVoeuO7F1TqqZ9lVQRvg$v3t4HUr6XSan5l2wZqOeNkyoWACPWFH64PuWg6kL7K0', true, '2026-11-28 18:56:44.835409+00', NULL);
INSERT INTO public.accounts (id, owner_id, name, password, is_admin, created_at, disabled_at) VALUES (2, 2, 'alice', '$argon2id$v=19$m=65536,t=3,p=4$m5tku79sqPJuYb+rxk2aZQ$MyD/PGK69AwoazYaiEcnfyz21dPOBdTTTO1+GsOykkw', false, '2026-11-28 18:56:45.284427+00', NULL);
INSERT INTO public.accounts (id, owner_id, name, password, is_admin, created_at, disabled_at) VALUES (3, 3, 'bob', '$argon2id$v=19$m=65536,t=3,p=4$FlkiGVvjQ+4qD0RuI2mFPw$ACpTu3EEEXavh4eCI0mZuv3mxPQcRpKcQeJV/xb2bUs', false, '2026-11-28 18:56:45.891389+00', NULL);
INSERT INTO public.accounts (id, owner_id, name, password, is_admin, created_at, disabled_at) VALUES (4, 4, 'carol', '$argon2id$v=19$m=65536,t=3,p=4$9OPWgpwHm0zpotiV/LLA0g$3A920NpqcEYIPGUmr3+MyuA43FXUb8WB+sOVewFxgwA', false, '2026-11-28 18:56:46.654048+00', NULL);
INSERT INTO public.accounts (id, owner_id, name, password, is_admin, created_at, disabled_at) VALUES (5, 6, 'dora', '', false, '2026-11-28 18:56:48.836851+00', NULL);


--
-- Data for Name: alembic_version; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.alembic_version (version_num) VALUES ('0014');


--
-- Data for Name: audit_events; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (1, '2026-11-28 18:56:44.850694+00', '', 'account created', 'root', 'root', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (2, '2026-11-28 18:56:45.286694+00', '', 'account created', 'alice', 'alice', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (3, '2026-11-28 18:56:45.912422+00', '', 'account created', 'bob', 'bob', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (4, '2026-11-28 18:56:46.663604+00', '', 'account created', 'carol', 'carol', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (5, '2026-11-28 18:56:47.117997+00', 'alice', 'token created', 'a program (account publish read results run training)', 'alice', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (6, '2026-11-28 18:56:47.547913+00', 'bob', 'token created', 'test (account publish read results run training)', 'bob', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (7, '2026-11-28 18:56:47.820227+00', 'root', 'token created', 'test (admin)', 'root', '');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (8, '2026-11-28 18:56:47.972112+00', 'alice', 'published', 'alice/coin 1.0.0', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (9, '2026-11-28 18:56:48.028884+00', 'alice', 'published', 'alice/coin 1.1.0', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (10, '2026-11-28 18:56:48.088014+00', 'alice', 'yanked', 'alice/coin 1.1.0', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (11, '2026-11-28 18:56:48.108823+00', 'alice', 'owner added', 'alice/coin: bob', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (12, '2026-11-28 18:56:48.148965+00', 'alice', 'key added', 'ed25519:e+5W/OiDfkVdpG982ZyNbA2piIzzU6E9UpoiYrjauXg=', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (13, '2026-11-28 18:56:48.26095+00', 'alice', 'published', 'alice/secret 1.0.0', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (14, '2026-11-28 18:56:48.36689+00', 'alice', 'reader added', 'alice/secret: bob', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (15, '2026-11-28 18:56:48.391257+00', 'root', 'invitation created', 'valid until 2026-12-12', 'root', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (16, '2026-11-28 18:56:48.411648+00', 'alice', 'organization created', 'guild', 'guild', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (17, '2026-11-28 18:56:48.444157+00', 'alice', 'invited', 'bob: reader', 'guild', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (18, '2026-11-28 18:56:48.456221+00', 'alice', 'invited', 'carol: reader', 'guild', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (19, '2026-11-28 18:56:48.470447+00', 'bob', 'joined', 'bob: reader', 'guild', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (20, '2026-11-28 18:56:48.838071+00', 'dora', 'account created', 'dora', 'dora', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (21, '2026-11-28 18:56:48.839118+00', 'dora', 'identity linked', 'dora-at-provider at http://127.0.0.1:46027', 'dora', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (22, '2026-11-28 18:56:49.623552+00', 'alice', 'signed in', '', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (23, '2026-11-28 18:56:49.764945+00', 'alice', 'training run created', '9cLARc3Xk_I2jZyH78fnUg a run', 'alice', 'testclient');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (24, '2026-11-28 18:57:02.578227+00', 'root', 'published', 'root/locks 1.0.0', 'root', '127.0.0.1');
INSERT INTO public.audit_events (id, at, actor, action, subject, account, address) VALUES (25, '2026-11-28 18:57:11.97702+00', 'root', 'published', 'root/others 1.0.0', 'root', '127.0.0.1');


--
-- Data for Name: device_sign_ins; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.device_sign_ins (digest, code_digest, account_id, state, document, address, created_at, expires_at, asked_at) VALUES ('4185f96504cf24078d1d616f443e6fa0913635d9119ff01bff28a5a3fc80b7c1', 'c103b5bd9b1874286f6acd45b6f9b64ec54a09e1f61ef3142367ab893b619d67', NULL, 'pending', '{"name":"a laptop","scopes":["read"],"days":30}', 'testclient', '2026-11-28 18:56:49.695059+00', '2026-11-28 19:06:49.695059+00', NULL);


--
-- Data for Name: hub_processes; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.hub_processes (id, expires_at, address) VALUES ('c5dda8ca7b82f52a5775af5f063fc6df', 1795892273.2761328, NULL);
INSERT INTO public.hub_processes (id, expires_at, address) VALUES ('c5dda8ca8ce563b8223b94c4329894d2', 1795892273.2087133, NULL);


--
-- Data for Name: invitations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.invitations (digest, created_by, expires_at) VALUES ('a738e58fd2cf30facbffed4b05718f25cf6c12a8f6657bedeb52e6976b40694e', 'root', '2026-12-12 18:56:48.390361+00');


--
-- Data for Name: kept_rollout_parts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.kept_rollout_parts (file_id, number, data) VALUES ('bcbab30b72219905', 0, '\x789cbd54db4ec3300c7de72baa3c8184c6da6a4242881f81a90aad572252a74add5d34f5df89bd6ed3b4758c81784a72629f1cdbb1d70a706ebcc30a90d453a4ac739f064b751fa9a6b64630f2da2023a49bcf00ac9529043f6d65b0806540c6613f33608b867dba2e1c6b674dbe62eb0ac499b4272832cd0ce3117b34903b149758ce86a0e2d3eb5a7967817ddb063c7b0743dac80e97b4aae5d260dd5246b01475b206f41d4a83d173937b53d38bb6e0e936be7b7ee801d54d83bc3dc9acc59c8cc32cd7d6ca5361cd3651cb3666107505db9cf159fbb2e53cb25cb57e539ade388c4e0d7367aea5a077f089fe3a608d5e44f1b9087ea43fb95c7f72a5fee4587ff267fad3cbf5a757ea4f8ff5a7677f90fc67a8fbcfca5baefe50653d2cb42fa49be6dab6200d30915f5dd50efb30020f009eb05a80293f68d725303705602e016ef751ac3ae9ba7d4b8d47b1e4a217970c95ed1fc425df894b876af20fe2d293e2b8c2d47aec2bbc9d4ce96eb06507f64cbe1faed971a05b82c96f091eaf21989e4e653c9a749bc94cad341267d54298d24ae88acc836e1c1e5e75375f13bdf6d0');


--
-- Data for Name: kept_rollouts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.kept_rollouts (id, owner, name, size, lines, index, kept_at) VALUES ('bcbab30b72219905', 'alice', 'a.jsonl', 1610, 1, '\x789c358fdd6ec3200c85dfc5d751142069425e65aa2613ac89853f11b2aaabfaee33eb7685fd71ec73fc00676105b319346a30b39442eb61820e2206e21fec3f8f143d83c37d3310173174b053aeef58b99df5b4682907dd2f6a1272eec0bb4807ac6f0f8867305458c4c3150bcb7994a2fddf924b329e02bb40e35faea41828b20e7c4abb8b1fcc2b1e3b83ca654ede6d776e385907856e585a78d1b7bce9ac5bfa8dcc4ff654c9b6e9b3440ea3787f7647b2f432cb585e3eadf6b8fd61ac95426e7c584919bde0685109e4bbec682c5d6854f0bc3e7f00fe595bda', '2026-11-28 18:56:49.835127+00');


--
-- Data for Name: maintainers; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.maintainers (package_id, principal) VALUES (1, 'bob');


--
-- Data for Name: match_boards; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.match_boards (id, package, version, sha256, environment, split, seats, numbers, changes, rated, seat_advantage, seat_low, seat_high, draw_share, process) VALUES (1, 'ada/games', '1.0.0', '8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288', 'auction', 'test', '["red", "blue"]', 3, 4, 4, 34.32767039201423, -265.66163473427196, 334.3169755183004, 0.3988586739969482, 'c5dda8ca8ce563b8223b94c4329894d2');
INSERT INTO public.match_boards (id, package, version, sha256, environment, split, seats, numbers, changes, rated, seat_advantage, seat_low, seat_high, draw_share, process) VALUES (2, 'ada/games', '1.0.0', '8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288', 'duel', 'test', '["red", "blue"]', 1, 0, 0, NULL, NULL, NULL, NULL, 'c5dda8ca8ce563b8223b94c4329894d2');


--
-- Data for Name: match_entrants; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (1, 'JjKe2YfCGG2_ly4KHwgg5A', 1, '(script)', false, true, 'weak', 'environment', '{"model":"weak","harness":"environment","options":{},"priceIn":null,"priceOut":null}', 0, 'ended', 0, '2026-11-28 18:57:25.225055+00', '2026-11-28 18:57:25.225055+00', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, true);
INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (2, '42FZUqkhIv8HnaFEXSk-tw', 1, '(script)', false, true, 'strong', 'environment', '{"model":"strong","harness":"environment","options":{},"priceIn":null,"priceOut":null}', 0, 'ended', 0, '2026-11-28 18:57:25.225055+00', '2026-11-28 18:57:25.225055+00', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, true);
INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (3, 'u7HagjeXg-fqNzC7xLA0oA', 1, 'alice', false, false, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 3, 'ended', 0, '2026-11-28 18:57:25.225055+00', '2026-12-05 18:57:25.225055+00', '2026-11-28 18:57:26.010262+00', 1669.2954126743407, 1391.914553257245, 1946.6762720914364, 0, 2, 1, 0, NULL, NULL, NULL, true);
INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (4, '0xAyfePszSSz5EcjElblhA', 1, 'bob', false, false, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 3, 'ended', 0, '2026-11-28 18:57:25.315202+00', '2026-12-05 18:57:25.315202+00', '2026-11-28 18:57:26.010262+00', 1330.7045873256593, 1053.3237279085636, 1608.085446742755, 0, 0, 1, 2, NULL, NULL, NULL, true);
INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (5, 'Xi84XsXOrZ0FyWLj8HCuJQ', 1, 'bob', false, false, 'cheat', 'h 1', '{"model":"cheat","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 3, 'ended', 0, '2026-11-28 18:57:26.058667+00', '2026-12-05 18:57:26.058667+00', '2026-11-28 18:57:26.093399+00', NULL, NULL, NULL, NULL, 0, 0, 0, '2026-11-28 18:57:26.103422+00', 'bob', 'a mistake', true);
INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (6, 'hmo_ucjGk-LyeymzgRVaVA', 2, 'alice', false, false, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 4, 'open', 0, '2026-11-28 18:57:26.122671+00', '2026-12-05 18:57:26.122671+00', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, true);
INSERT INTO public.match_entrants (id, key, board_id, principal, by_publisher, is_script, model, harness, declared, registered, state, voided, created_at, deadline, ended_at, rating, rating_low, rating_high, component, wins, draws, losses, removed_at, removed_by, removed_reason, still_counts) VALUES (7, 'rH7gH29G6zYdCNrClLnKMQ', 2, 'bob', false, false, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 4, 'open', 0, '2026-11-28 18:57:26.138708+00', '2026-12-05 18:57:26.138708+00', NULL, NULL, NULL, NULL, NULL, 0, 0, 0, NULL, NULL, NULL, true);


--
-- Data for Name: match_log; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.match_log (id, at, entrant_id, by, reason) VALUES (1, '2026-11-28 18:57:26.103422+00', 5, 'bob', 'a mistake');


--
-- Data for Name: matches; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.matches (id, key, board_id, number, first_id, second_id, state, process, score, first_reward, second_reward, first_end, second_end, commitment, opening, created_at, ended_at) VALUES (1, 'mjRx6-WZtkl_1IqCNX6wGA', 1, 1, 4, 3, 'ended', 'c5dda8ca8ce563b8223b94c4329894d2', 0, -1, 1, 'completed', 'completed', 'd154b05cc70da8765e986d609ae47dd3d5f155715c863f015541737857593b1f', '{"secret":"c4c38e5698807d06fefb56e6c0b4e039b5b2b66b70db9a92fcf2b6e20534a93b","environment":"auction","split":"test","count":30,"index":8,"task":"deal8","seed":197624366626371,"entrants":["0xAyfePszSSz5EcjElblhA","u7HagjeXg-fqNzC7xLA0oA"],"balances":[0,0]}', '2026-11-28 18:57:25.407799+00', '2026-11-28 18:57:25.513325+00');
INSERT INTO public.matches (id, key, board_id, number, first_id, second_id, state, process, score, first_reward, second_reward, first_end, second_end, commitment, opening, created_at, ended_at) VALUES (2, 'QrSmPd_6DQUKB7Dh9L-3ig', 1, 2, 3, 4, 'ended', 'c5dda8ca8ce563b8223b94c4329894d2', 1, 1, -1, 'completed', 'completed', 'e729053d50ee57fcf6e96ca23b2a1bad73200440fc9769a43da5b43430acf008', '{"secret":"d77c82a562155290eae703cb2966b3eea21d2a5d12d9c99ecc6043b33dd32968","environment":"auction","split":"test","count":30,"index":11,"task":"deal11","seed":182260566276224,"entrants":["u7HagjeXg-fqNzC7xLA0oA","0xAyfePszSSz5EcjElblhA"],"balances":[-1,1]}', '2026-11-28 18:57:25.668926+00', '2026-11-28 18:57:25.707276+00');
INSERT INTO public.matches (id, key, board_id, number, first_id, second_id, state, process, score, first_reward, second_reward, first_end, second_end, commitment, opening, created_at, ended_at) VALUES (3, 'XnlFOPcunsDZpgNSyLI5lg', 1, 3, 4, 3, 'ended', 'c5dda8ca8ce563b8223b94c4329894d2', 0.5, 0, 0, 'completed', 'completed', 'b0ce9546b80c85c65deaad51b5b82d759ff4299473d2a69b7e2a7e5b2cf9a088', '{"secret":"560e1a2fd725bd897f0ae1598e0f8f018f6049e34e89dd4b82997df0d73a3e6c","environment":"auction","split":"test","count":30,"index":6,"task":"deal6","seed":178604748330552,"entrants":["0xAyfePszSSz5EcjElblhA","u7HagjeXg-fqNzC7xLA0oA"],"balances":[0,0]}', '2026-11-28 18:57:25.939318+00', '2026-11-28 18:57:26.010262+00');
INSERT INTO public.matches (id, key, board_id, number, first_id, second_id, state, process, score, first_reward, second_reward, first_end, second_end, commitment, opening, created_at, ended_at) VALUES (4, 'M7XcZbdqBMeVt0wRexe5Vw', 2, 1, 6, 7, 'open', 'c5dda8ca8ce563b8223b94c4329894d2', NULL, NULL, NULL, NULL, NULL, '7d38b7703ee6d6a289102c8d676afa383d168566b2fae57035830996a69f4cc4', '{"secret":"54ae2e9fed1f14883c9e4fb4e8ba18ea929dd8b7f81f272cca976d2493bb720b","environment":"duel","split":"test","count":30,"index":12,"task":"deal12","seed":164293439295353,"entrants":["hmo_ucjGk-LyeymzgRVaVA","rH7gH29G6zYdCNrClLnKMQ"],"balances":[0,0]}', '2026-11-28 18:57:26.172851+00', NULL);


--
-- Data for Name: organization_invitations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.organization_invitations (organization_id, name, account_id, role, invited_by, expires_at) VALUES (1, 'carol', 4, 'reader', 'alice', '2026-12-12 18:56:48.455381+00');


--
-- Data for Name: organization_members; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.organization_members (organization_id, account_id, role, joined_at) VALUES (1, 2, 'owner', '2026-11-28 18:56:48.407022+00');
INSERT INTO public.organization_members (organization_id, account_id, role, joined_at) VALUES (1, 3, 'reader', '2026-11-28 18:56:48.469558+00');


--
-- Data for Name: organizations; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.organizations (id, owner_id, name, public, created_at) VALUES (1, 5, 'guild', true, '2026-11-28 18:56:48.407022+00');


--
-- Data for Name: owners; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (1, 'root', 'root', '2026-11-28 18:56:44.835409+00', NULL);
INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (2, 'alice', 'allce', '2026-11-28 18:56:45.284427+00', NULL);
INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (3, 'bob', 'bob', '2026-11-28 18:56:45.891389+00', NULL);
INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (4, 'carol', 'carol', '2026-11-28 18:56:46.654048+00', NULL);
INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (5, 'guild', 'gulld', '2026-11-28 18:56:48.407022+00', NULL);
INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (6, 'dora', 'dora', '2026-11-28 18:56:48.836851+00', NULL);
INSERT INTO public.owners (id, name, skeleton, created_at, retired_at) VALUES (7, 'ada', 'ada', '2026-11-28 18:57:23.380637+00', NULL);


--
-- Data for Name: package_search; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.package_search (package_id, head, document) VALUES (1, '''a'':4C ''alice'':1A ''coin'':2A,3B,5C', '''1'':22 ''a'':4C,13,18 ''alice'':1A ''amp'':9 ''and'':12 ''begins'':16 ''coin'':2A,3B,5C,7 ''like'':17 ''line'':14 ''more'':11 ''quotes'':10 ''set'':20 ''statement'':19 ''that'':15 ''toss'':6 ''x'':21 ''ünïcode'':8');
INSERT INTO public.package_search (package_id, head, document) VALUES (2, '''a'':4C ''alice'':1A ''coin'':3B,5C ''secret'':2A', '''a'':4C ''alice'':1A ''coin'':3B,5C,7 ''secret'':2A ''toss'':6');
INSERT INTO public.package_search (package_id, head, document) VALUES (3, '''a'':4C ''coin'':3B,5C ''locks'':2A ''root'':1A', '''a'':4C ''coin'':3B,5C,7 ''locks'':2A,6 ''root'':1A');
INSERT INTO public.package_search (package_id, head, document) VALUES (4, '''a'':4C ''coin'':3B,5C ''others'':2A ''root'':1A', '''a'':4C ''coin'':3B,5C,7 ''locks'':6 ''others'':2A ''root'':1A');
INSERT INTO public.package_search (package_id, head, document) VALUES (5, '''a'':4C ''ada'':1A ''coin'':3B,5C ''locks'':2A', '''a'':4C ''ada'':1A ''coin'':3B,5C,8 ''debts'':7 ''locks'':2A,6');
INSERT INTO public.package_search (package_id, head, document) VALUES (6, '''a'':4C ''ada'':1A ''coin'':3B,5C ''games'':2A', '''a'':4C ''ada'':1A ''auction'':6 ''coin'':3B,5C,10 ''duel'':7 ''games'':2A ''locks'':8 ''melee'':9');


--
-- Data for Name: package_tags; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.package_tags (tag, package_id) VALUES ('coin', 1);
INSERT INTO public.package_tags (tag, package_id) VALUES ('coin', 2);
INSERT INTO public.package_tags (tag, package_id) VALUES ('coin', 3);
INSERT INTO public.package_tags (tag, package_id) VALUES ('coin', 4);
INSERT INTO public.package_tags (tag, package_id) VALUES ('coin', 5);
INSERT INTO public.package_tags (tag, package_id) VALUES ('coin', 6);
INSERT INTO public.package_tags (tag, package_id) VALUES ('owner:ada', 5);
INSERT INTO public.package_tags (tag, package_id) VALUES ('owner:ada', 6);
INSERT INTO public.package_tags (tag, package_id) VALUES ('owner:alice', 1);
INSERT INTO public.package_tags (tag, package_id) VALUES ('owner:alice', 2);
INSERT INTO public.package_tags (tag, package_id) VALUES ('owner:root', 3);
INSERT INTO public.package_tags (tag, package_id) VALUES ('owner:root', 4);


--
-- Data for Name: packages; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, updated_at, private) VALUES (1, 2, 'alice', 'coin', 'coln', 'alice-coin', '1.0.0', '{"id":"alice/coin","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["toss"],"tools":[],"tasks":null,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:56:47.944587Z"}', '2026-11-28 18:56:47.944587+00', '2026-11-28 18:56:48.014394+00', false);
INSERT INTO public.packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, updated_at, private) VALUES (2, 2, 'alice', 'secret', 'secret', 'alice-secret', '1.0.0', '{"id":"alice/secret","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["toss"],"tools":[],"tasks":null,"signed":true,"yanked":false,"passed":null,"private":true,"updatedAt":"2026-11-28T18:56:48.224537Z"}', '2026-11-28 18:56:48.224537+00', '2026-11-28 18:56:48.224537+00', true);
INSERT INTO public.packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, updated_at, private) VALUES (3, 1, 'root', 'locks', 'locks', 'root-locks', '1.0.0', '{"id":"root/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["locks"],"tools":[],"tasks":40,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:02.437812Z"}', '2026-11-28 18:57:02.437812+00', '2026-11-28 18:57:02.437812+00', false);
INSERT INTO public.packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, updated_at, private) VALUES (4, 1, 'root', 'others', 'others', 'root-others', '1.0.0', '{"id":"root/others","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["locks"],"tools":[],"tasks":40,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:11.948473Z"}', '2026-11-28 18:57:11.948473+00', '2026-11-28 18:57:11.948473+00', false);
INSERT INTO public.packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, updated_at, private) VALUES (5, 7, 'ada', 'locks', 'locks', 'ada-locks', '1.0.0', '{"id":"ada/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["locks","debts"],"tools":[],"tasks":88,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:23.380637Z"}', '2026-11-28 18:57:23.380637+00', '2026-11-28 18:57:23.380637+00', false);
INSERT INTO public.packages (id, owner_id, owner, name, skeleton, distribution, latest, summary, created_at, updated_at, private) VALUES (6, 7, 'ada', 'games', 'games', 'ada-games', '1.0.0', '{"id":"ada/games","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":["auction","duel","locks","melee"],"tools":[],"tasks":143,"signed":true,"yanked":false,"passed":null,"private":false,"updatedAt":"2026-11-28T18:57:25.064433Z"}', '2026-11-28 18:57:25.064433+00', '2026-11-28 18:57:25.064433+00', false);


--
-- Data for Name: pending_sign_ins; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.pending_sign_ins (digest, browser, purpose, account_id, document, expires_at) VALUES ('7ac34f72e66940674773a6971d804cca5ad15e712b9a6c34bbe4c9732e7ccd1d', 'aa14d7231cbfa6839a70bda98fbb69b6c9789ae4fd2af6cf618b1d3a5db5e04d', 'sign in', NULL, '{"redirect_uri":"http://127.0.0.1/login/openid/callback","nonce":"NlqbbHwUKozm_rS-rJOjfHzIsFlGEmnbPRzQG8-Zzhw","verifier":"D6CS2wzT8v1hW6hYGOth9ym3XCgbGukWIaqrRmREO5IBvlQJy2MHOI1Gsvismq1GQOAm11g48WMF514N8dCrs0","following":"/account","begun":1795892208.9869444}', '2026-11-28 19:11:48.987232+00');


--
-- Data for Name: publisher_keys; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.publisher_keys (owner_id, key, added_at) VALUES (1, 'ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=', '2026-11-28 18:57:02.437812+00');
INSERT INTO public.publisher_keys (owner_id, key, added_at) VALUES (2, 'ed25519:e+5W/OiDfkVdpG982ZyNbA2piIzzU6E9UpoiYrjauXg=', '2026-11-28 18:56:48.134462+00');
INSERT INTO public.publisher_keys (owner_id, key, added_at) VALUES (2, 'ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=', '2026-11-28 18:56:47.944587+00');
INSERT INTO public.publisher_keys (owner_id, key, added_at) VALUES (7, 'ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=', '2026-11-28 18:57:23.380637+00');


--
-- Data for Name: rate_counts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.rate_counts (key, period, count, expires_at) VALUES ('35890ce7ffe6bb81af30a43f47b57f1a85cb78fb', 498858, 1, 1795896000);
INSERT INTO public.rate_counts (key, period, count, expires_at) VALUES ('603e18ee73d0322f60a444b93ce9a61054ccdb43', 1995435, 4, 1795893300);
INSERT INTO public.rate_counts (key, period, count, expires_at) VALUES ('a007a2643de306a1ab4c64da1de6aa26fa34f911', 1995435, 1, 1795893300);
INSERT INTO public.rate_counts (key, period, count, expires_at) VALUES ('c682003df0ff3422ad78e16ca25dfe79abac6b0b', 1995435, 1, 1795893300);


--
-- Data for Name: readers; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.readers (package_id, principal) VALUES (2, 'bob');


--
-- Data for Name: result_boards; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.result_boards (id, package, version, sha256, environment, split, level, lowest, highest, tasks, difficulty) VALUES (1, 'root/locks', '1.0.0', '91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d', 'locks', 'test', 'verified', 0, 1, '[["lock-36", 1, 1.0, 1]]', '[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]');
INSERT INTO public.result_boards (id, package, version, sha256, environment, split, level, lowest, highest, tasks, difficulty) VALUES (2, 'root/others', '1.0.0', 'c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb', 'locks', 'test', 'verified', 0, 1, '[["lock-14", 1, 0.0, 0]]', '[1, 0, 0, 0, 0, 0, 0, 0, 0, 0]');
INSERT INTO public.result_boards (id, package, version, sha256, environment, split, level, lowest, highest, tasks, difficulty) VALUES (3, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'locks', 'test', 'played', 0, 1, '[["lock-3", 1, 1.0, 1], ["lock-39", 1, 1.0, 1], ["lock-30", 1, 1.0, 1], ["lock-24", 1, 0.0, 0]]', '[1, 0, 0, 0, 0, 0, 0, 0, 0, 3]');
INSERT INTO public.result_boards (id, package, version, sha256, environment, split, level, lowest, highest, tasks, difficulty) VALUES (4, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'debts', 'test', 'played', -1, 1, '[]', '[]');
INSERT INTO public.result_boards (id, package, version, sha256, environment, split, level, lowest, highest, tasks, difficulty) VALUES (5, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'locks', 'test', 'reported', 0, 1, '[["lock-0", 1, 1.0, 1], ["lock-1", 1, 0.0, 0], ["lock-2", 1, 0.0, 0], ["lock-3", 1, 1.0, 1]]', '[2, 0, 0, 0, 0, 0, 0, 0, 0, 2]');
INSERT INTO public.result_boards (id, package, version, sha256, environment, split, level, lowest, highest, tasks, difficulty) VALUES (6, 'ada/locks', '1.0.0', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 'locks', 'train', 'reported', 0, 1, '[["train-0", 1, 1.0, 1]]', '[0, 0, 0, 0, 0, 0, 0, 0, 0, 1]');


--
-- Data for Name: result_episodes; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (1, 0, 'lock-36', 36, 0, 249797589595598, 'ended', 1, 1, 1, 'completed', 1, '2026-11-28 18:57:09.651865+00', '2026-11-28 18:57:11.651027+00', 11, 3, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (2, 0, 'lock-14', 14, 0, 81202629912704, 'ended', 3, NULL, 0, 'infrastructure_error', NULL, '2026-11-28 18:57:17.93717+00', '2026-11-28 18:57:17.946687+00', NULL, NULL, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (3, 0, 'lock-3', 3, 0, 72168179831785, 'ended', 1, 1, 1, 'completed', 1, '2026-11-28 18:57:24.236448+00', '2026-11-28 18:57:24.464319+00', 1000, 100, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (3, 1, 'lock-39', 39, 0, 115978604515625, 'ended', 1, 1, 1, 'completed', 1, '2026-11-28 18:57:24.493546+00', '2026-11-28 18:57:24.563811+00', 1000, 100, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (3, 2, 'lock-30', 30, 0, 224652280195216, 'ended', 1, 1, 1, 'completed', 1, '2026-11-28 18:57:24.572846+00', '2026-11-28 18:57:24.596878+00', 1000, 100, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (3, 3, 'lock-24', 24, 0, 232706224700343, 'ended', 1, 0, 0, 'completed', 1, '2026-11-28 18:57:24.607699+00', '2026-11-28 18:57:24.633542+00', 1000, 100, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (4, 0, 'lock-10', 10, 0, 91220759579519, 'open', 1, NULL, NULL, NULL, NULL, '2026-11-28 18:57:24.716374+00', NULL, NULL, NULL, 'c5dda8ca8ce563b8223b94c4329894d2');
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (4, 1, 'lock-31', 31, 0, 39378625376240, 'waiting', 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (5, 0, 'lock-0', 0, 0, 7, 'ended', 1, 1, 1, 'completed', NULL, NULL, '2026-11-28 18:57:24.743363+00', 10, 2, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (5, 1, 'lock-1', 1, 0, 7, 'ended', 1, 0, 0, 'completed', NULL, NULL, '2026-11-28 18:57:24.743363+00', 10, 2, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (5, 2, 'lock-2', 2, 0, 7, 'ended', 1, NULL, 0, 'failed', NULL, NULL, '2026-11-28 18:57:24.743363+00', 10, 2, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (5, 3, 'lock-3', 3, 0, 7, 'ended', 1, 1, 1, 'completed', NULL, NULL, '2026-11-28 18:57:24.743363+00', 10, 2, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (6, 0, 'lock-0', 0, 0, 7, 'ended', 1, 1, 1, 'completed', NULL, NULL, '2026-11-28 18:57:24.874444+00', 10, 2, NULL);
INSERT INTO public.result_episodes (run_id, place, task, task_index, sample, seed, state, attempts, reward, value, "end", steps, started_at, ended_at, input_tokens, output_tokens, process) VALUES (7, 0, 'train-0', 0, 0, 7, 'ended', 1, 1, 1, 'completed', NULL, NULL, '2026-11-28 18:57:24.968996+00', 10, 2, NULL);


--
-- Data for Name: result_lines; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.result_lines (id, board_id, principal, model, harness, mean, document) VALUES (1, 1, 'alice', 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', 1, '{"by":"alice","byPublisher":false,"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","runs":["2s5qqBl6WuwXs4wO_N_wTw"],"accountRuns":1,"tasks":1,"episodes":1,"unscored":0,"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"inputTokens":11,"outputTokens":3,"cost":null,"at":"2026-11-28T18:57:11.661657Z"}');
INSERT INTO public.result_lines (id, board_id, principal, model, harness, mean, document) VALUES (2, 2, 'alice', 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', 0, '{"by":"alice","byPublisher":false,"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","runs":["s_kx5TH5r-tGXL4C16d_AA"],"accountRuns":1,"tasks":1,"episodes":1,"unscored":1,"mean":{"value":0.0,"error":null,"interval":null,"tasks":1},"success":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1},"passAt":{"1":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1}},"inputTokens":null,"outputTokens":null,"cost":null,"at":"2026-11-28T18:57:17.957078Z"}');
INSERT INTO public.result_lines (id, board_id, principal, model, harness, mean, document) VALUES (3, 3, 'alice', 'm', 'h 1', 0.75, '{"by":"alice","byPublisher":false,"model":"m","harness":"h 1","runs":["hkpynqGWqGaT5K56aPfgWA"],"accountRuns":1,"tasks":4,"episodes":4,"unscored":0,"mean":{"value":0.75,"error":0.25,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4},"passAt":{"1":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4}},"inputTokens":4000,"outputTokens":400,"cost":0.0084,"at":"2026-11-28T18:57:24.637737Z"}');
INSERT INTO public.result_lines (id, board_id, principal, model, harness, mean, document) VALUES (4, 5, 'bob', 'm', 'h 1', 0.5, '{"by":"bob","byPublisher":false,"model":"m","harness":"h 1","runs":["xpvU2j-sLTz-ruMqAX5syQ"],"accountRuns":1,"tasks":4,"episodes":4,"unscored":1,"mean":{"value":0.5,"error":0.28867513459481287,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4},"passAt":{"1":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4}},"inputTokens":40,"outputTokens":8,"cost":null,"at":"2026-11-28T18:57:24.743363Z"}');
INSERT INTO public.result_lines (id, board_id, principal, model, harness, mean, document) VALUES (5, 6, 'alice', 'm', 'h 1', 1, '{"by":"alice","byPublisher":false,"model":"m","harness":"h 1","runs":["ihIils9UUmrC3MfrVaHKsg"],"accountRuns":1,"tasks":1,"episodes":1,"unscored":0,"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"inputTokens":10,"outputTokens":2,"cost":null,"at":"2026-11-28T18:57:24.968996Z"}');


--
-- Data for Name: result_log; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.result_log (id, at, kind, run_id, by, reason, before, after) VALUES (1, '2026-11-28 18:57:24.942423+00', 'removed', 6, 'alice', 'a mistake', NULL, NULL);


--
-- Data for Name: result_runs; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (1, '2s5qqBl6WuwXs4wO_N_wTw', 1, 'alice', false, 1, 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', '{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1, 0, 1, 'ended', '2026-11-28 18:57:09.520489+00', '2026-12-01 18:57:09.520489+00', '2026-11-28 18:57:11.661657+00', '832085d903453174692ffa1522996d6bafa1c6888fed1deed83c3feea6683917', '{"secret":"16386ebb5836e8435d6e04702d1ab7f8297e0c087cc86d7a91a67e43bc8e777d","environment":"locks","split":"test","count":40,"tasks":[{"index":36,"task":"lock-36","seeds":[249797589595598]}]}', NULL, 0, '{"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"ends":{"completed":1},"episodes":1,"unscored":0,"inputTokens":11,"outputTokens":3,"cost":null}', '[["lock-36", 1, 1.0, 1]]', '{"statement":{"run":"2s5qqBl6WuwXs4wO_N_wTw","package":"root/locks","version":"1.0.0","sha256":"91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d","environment":"locks","split":"test","tasks":1,"samples":1,"by":"alice","declared":{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null},"registeredAt":"2026-11-28T18:57:09.520489Z","endedAt":"2026-11-28T18:57:11.661657Z","rewardRange":[0.0,1.0],"commitment":"832085d903453174692ffa1522996d6bafa1c6888fed1deed83c3feea6683917","opening":{"secret":"16386ebb5836e8435d6e04702d1ab7f8297e0c087cc86d7a91a67e43bc8e777d","environment":"locks","split":"test","count":40,"tasks":[{"index":36,"task":"lock-36","seeds":[249797589595598]}]},"rows":1,"root":"270d15581103cc017c9913cc8d9af8737466ebf373b13571c5f763aef7f7db28","ends":{"completed":1},"mean":1.0,"kind":"ludus-receipt-verified-1","verified":{"harness":"ludus 0.1.0","harnessSha256":"13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69","host":"127.0.0.1:41221","model":"m-1"},"calls":1,"callsRoot":"e9185eea50f5205e7dfa2dcd1c642043ecf508940d46ba48930e64568b336bae"},"key":"ed25519:jU6ZCaVAAULZO85dyWcVbmcDH4jyujJLS+OATHmtb8M=","signature":"T6IJSCGjwl5Cj4JQ3xOI7VhCJoRLdbkNBr2xXwJrdC3CiVsSWzirLh/49x4wx3iXVvVm1DzEEPDiomNsjt3oBA=="}', NULL, NULL, NULL, NULL);
INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (2, 's_kx5TH5r-tGXL4C16d_AA', 2, 'alice', false, 1, 'm-1 at 127.0.0.1:41221', 'ludus 0.1.0 sha256:13281a818640', '{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1, 0, 1, 'ended', '2026-11-28 18:57:17.854751+00', '2026-12-01 18:57:17.854751+00', '2026-11-28 18:57:17.957078+00', '728f936743280b5a975a747a68e6f400cc67c8c6569390a8a85ff9a2983d30ea', '{"secret":"292efac07bff9084b360d1fffd716b37c3ac486c08fcc3c507580aab59df4bda","environment":"locks","split":"test","count":40,"tasks":[{"index":14,"task":"lock-14","seeds":[81202629912704]}]}', NULL, 2, '{"mean":{"value":0.0,"error":null,"interval":null,"tasks":1},"success":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1},"passAt":{"1":{"value":0.0,"error":null,"interval":[0.0,0.7934506856996815],"tasks":1}},"ends":{"infrastructure_error":1},"episodes":1,"unscored":1,"inputTokens":null,"outputTokens":null,"cost":null}', '[["lock-14", 1, 0.0, 0]]', '{"statement":{"run":"s_kx5TH5r-tGXL4C16d_AA","package":"root/others","version":"1.0.0","sha256":"c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb","environment":"locks","split":"test","tasks":1,"samples":1,"by":"alice","declared":{"model":"m-1 at 127.0.0.1:41221","harness":"ludus 0.1.0 sha256:13281a818640","options":{},"priceIn":null,"priceOut":null},"registeredAt":"2026-11-28T18:57:17.854751Z","endedAt":"2026-11-28T18:57:17.957078Z","rewardRange":[0.0,1.0],"commitment":"728f936743280b5a975a747a68e6f400cc67c8c6569390a8a85ff9a2983d30ea","opening":{"secret":"292efac07bff9084b360d1fffd716b37c3ac486c08fcc3c507580aab59df4bda","environment":"locks","split":"test","count":40,"tasks":[{"index":14,"task":"lock-14","seeds":[81202629912704]}]},"rows":1,"root":"136a404edb89bbe1d36e45257479531dd8079ac351895702747fd0a9e408d49d","ends":{"infrastructure_error":1},"mean":0.0,"kind":"ludus-receipt-verified-1","verified":{"harness":"ludus 0.1.0","harnessSha256":"13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69","host":"127.0.0.1:41221","model":"m-1"},"calls":0,"callsRoot":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},"key":"ed25519:jU6ZCaVAAULZO85dyWcVbmcDH4jyujJLS+OATHmtb8M=","signature":"sn9tUFqSZ9JLPkTrS+xccUhpdB23nMlSRA6bdz2KND2HiX2EFHIjxorVaUyvTxChQJwoLbRnS7fQdSB92hnMDA=="}', NULL, NULL, NULL, NULL);
INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (3, 'hkpynqGWqGaT5K56aPfgWA', 3, 'alice', false, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":2.0,"priceOut":1.0}', 4, 1, 1, 0, 1, 'ended', '2026-11-28 18:57:24.086654+00', '2026-11-29 18:57:24.086654+00', '2026-11-28 18:57:24.637737+00', 'd95a2a74f7f7e09179e5328190406d9beb439efd89874dbb385079d4b6ad5fbe', '{"secret":"fc2d25dc6b2f16a98a54c6899d555025d1945dea3a58cb0ed66fa84e009a54ae","environment":"locks","split":"test","count":40,"tasks":[{"index":3,"task":"lock-3","seeds":[72168179831785]},{"index":39,"task":"lock-39","seeds":[115978604515625]},{"index":30,"task":"lock-30","seeds":[224652280195216]},{"index":24,"task":"lock-24","seeds":[232706224700343]}]}', NULL, 0, '{"mean":{"value":0.75,"error":0.25,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4},"passAt":{"1":{"value":0.75,"error":0.25,"interval":[0.13071841103628323,0.9835662235317406],"tasks":4}},"ends":{"completed":4},"episodes":4,"unscored":0,"inputTokens":4000,"outputTokens":400,"cost":0.0084}', '[["lock-3", 1, 1.0, 1], ["lock-39", 1, 1.0, 1], ["lock-30", 1, 1.0, 1], ["lock-24", 1, 0.0, 0]]', '{"statement":{"run":"hkpynqGWqGaT5K56aPfgWA","package":"ada/locks","version":"1.0.0","sha256":"a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205","environment":"locks","split":"test","tasks":4,"samples":1,"by":"alice","declared":{"model":"m","harness":"h 1","options":{},"priceIn":2.0,"priceOut":1.0},"registeredAt":"2026-11-28T18:57:24.086654Z","endedAt":"2026-11-28T18:57:24.637737Z","rewardRange":[0.0,1.0],"commitment":"d95a2a74f7f7e09179e5328190406d9beb439efd89874dbb385079d4b6ad5fbe","opening":{"secret":"fc2d25dc6b2f16a98a54c6899d555025d1945dea3a58cb0ed66fa84e009a54ae","environment":"locks","split":"test","count":40,"tasks":[{"index":3,"task":"lock-3","seeds":[72168179831785]},{"index":39,"task":"lock-39","seeds":[115978604515625]},{"index":30,"task":"lock-30","seeds":[224652280195216]},{"index":24,"task":"lock-24","seeds":[232706224700343]}]},"rows":4,"root":"77bfe0e7d4692040c9c12f834f58bdd14670be88d4998f77545d5f5f5d9eee42","ends":{"completed":4},"mean":0.75,"kind":"ludus-receipt-1"},"key":"ed25519:jU6ZCaVAAULZO85dyWcVbmcDH4jyujJLS+OATHmtb8M=","signature":"5v9xATlfmgOrYzmsRJhdlr1uPcsyU8pubbAnZu6RobCmx1BwKrhMandpMCF7gjSajZxFXNKaLXX8u1XU+bCFDw=="}', NULL, NULL, NULL, NULL);
INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (4, 'jOrpvd5SMsywZCIPZugyGA', 4, 'bob', false, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 2, 1, 1, -1, 1, 'open', '2026-11-28 18:57:24.699804+00', '2026-11-29 18:57:24.699804+00', NULL, '2aa26806eea96e00da7332eba7821dbe2dca952e4e4792b1a8841bc601d12b26', '{"secret":"ef302c5897b27befe9ad87f6ef81364e2e90c9cfecbc21b18fea0ef6a05dbdcb","environment":"debts","split":"test","count":40,"tasks":[{"index":10,"task":"lock-10","seeds":[91220759579519]},{"index":31,"task":"lock-31","seeds":[39378625376240]}]}', NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (5, 'xpvU2j-sLTz-ruMqAX5syQ', 5, 'bob', false, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 4, 1, 1, 0, 1, 'ended', '2026-11-28 18:57:24.743363+00', NULL, '2026-11-28 18:57:24.743363+00', NULL, NULL, '1f6d7bcbe3b6ef2c29f9f853f0302d39dac14482c172b662abc3cd138ce0b16e', 0, '{"mean":{"value":0.5,"error":0.28867513459481287,"interval":[0.0,1.0],"tasks":4},"success":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4},"passAt":{"1":{"value":0.5,"error":0.28867513459481287,"interval":[0.06084435251725609,0.9391556474827438],"tasks":4}},"ends":{"completed":3,"failed":1},"episodes":4,"unscored":1,"inputTokens":40,"outputTokens":8,"cost":null}', '[["lock-0", 1, 1.0, 1], ["lock-1", 1, 0.0, 0], ["lock-2", 1, 0.0, 0], ["lock-3", 1, 1.0, 1]]', NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (6, '91nnppSgnGWUb9cpnMTlyA', 5, 'alice', false, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1, 0, 1, 'ended', '2026-11-28 18:57:24.874444+00', NULL, '2026-11-28 18:57:24.874444+00', NULL, NULL, '30e8309c1d7b94f0ba7b83835975e4b1c9e66cc7fae80e658bf27b4a911e887e', 0, '{"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"ends":{"completed":1},"episodes":1,"unscored":0,"inputTokens":10,"outputTokens":2,"cost":null}', '[["lock-0", 1, 1.0, 1]]', NULL, '2026-11-28 18:57:24.942423+00', 'alice', 'a mistake', NULL);
INSERT INTO public.result_runs (id, key, board_id, principal, by_publisher, number, model, harness, declared, tasks, samples, success_at, lowest, highest, state, created_at, deadline, ended_at, commitment, opening, digest, reruns, figures, per_task, receipt, removed_at, removed_by, removed_reason, rollouts) VALUES (7, 'ihIils9UUmrC3MfrVaHKsg', 6, 'alice', false, 1, 'm', 'h 1', '{"model":"m","harness":"h 1","options":{},"priceIn":null,"priceOut":null}', 1, 1, 1, 0, 1, 'ended', '2026-11-28 18:57:24.968996+00', NULL, '2026-11-28 18:57:24.968996+00', NULL, NULL, '252a97f8a07c4cdf1db268d2fb4830a3c93d9ad69f2a2d42b323006728008deb', 0, '{"mean":{"value":1.0,"error":null,"interval":null,"tasks":1},"success":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1},"passAt":{"1":{"value":1.0,"error":null,"interval":[0.20654931430031861,1.0],"tasks":1}},"ends":{"completed":1},"episodes":1,"unscored":0,"inputTokens":10,"outputTokens":2,"cost":null}', '[["train-0", 1, 1.0, 1]]', NULL, NULL, NULL, NULL, '513666e0870422e274245c477cf1561803d2183ddfdc1912ae7ce30abfb3c37b');


--
-- Data for Name: training_batches; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.training_batches (run_id, number, attempt, digest, points, data) VALUES (1, 0, 0, 'c9d54c26797765c5a38ab791de4399d5503e3677d96893318888bfe930fca25c', 5, '\x789cab562a2e492d50b28a36d431d231d631d1318dd5512ac9cc4d0509e919e8a061a0646e6a49516672b19255b552516a7962518a7e6e6a621e54b911101b03b109109b0295d7d60200f18919cf');


--
-- Data for Name: training_rollouts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.training_rollouts (run_id, number, digest, step, environment, task, reward, outcome, data) VALUES (1, 1, '3e1ef554e548eaa03c32542c15f500ab721f0cf4a1e7a5f8060446fd4e42a7f7', 3, 'toss', 'task-7', '1', 'completed', '\x789c654fc14a44310cfc95256757d4cb422f7e882c8ff01ad7605f5a9a74dde5d17f372d82a0a7ce4c2633e90e2457ae59361283009655e101b4249eb4228bf39213af77177e803b0cab515cd06dcf8f4f2ed09a252a8497c10cf513c20e1c478a93e3c9975822dd209cfe17bc33a5b1bcf73eb3ad3981356f2591d7b883242e9550b3fc1954fac21a47d91553a3798e87b0d1e6196f3bd8bdb80a1ba9e285c6464e43684ad5999f6df3f3bf5696d26c31ba99cfe713e08330ea21d78321277d857eeee7712a95d1e2d05a9509fb375928718f');


--
-- Data for Name: training_runs; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.training_runs (id, key, principal, sender_key, name, public, trainer, config, environments, steps, state, reason, attempt, attempts, next_batch, points, "values", size, metrics, last_step, dropped, rollouts, created_at, heard_at, ended_at, summary, summary_upto, summary_values) VALUES (1, '9cLARc3Xk_I2jZyH78fnUg', 'alice', 'sender-bq', 'a run', false, 'unknown', '{}', '[{"name": "toss", "package": "alice/coin", "version": "1.0.0"}]', 9, 'finished', '', 'attempt-1', '[[0, 1795892209.747102]]', 1, 5, 5, 438, '["reward/mean"]', 5, 0, 1, '2026-11-28 18:56:49.747102+00', '2026-11-28 18:56:49.805959+00', '2026-11-28 18:56:49.805959+00', NULL, 0, 0);


--
-- Data for Name: verified_attempts; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.verified_attempts (run_id, place, attempt, ending, output) VALUES (1, 0, 1, 'exit code 0', '');


--
-- Data for Name: verified_calls; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.verified_calls (run_id, place, attempt, number, request, answer, status, input_tokens, output_tokens) VALUES (1, 0, 1, 1, 'dc5b793105825af228c0f8c401d3e01225064ede4c5ee06981aba2bdf371362b', '4c4224aff87a0b0d6124f1fac25a8d5490c574527d2e9cb9aa1c97007803d75c', 200, 11, 3);


--
-- Data for Name: verified_runs; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.verified_runs (run_id, harness, harness_sha256, host, model, base_url, sealed, most_tokens, process) VALUES (1, 'ludus 0.1.0', '13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69', '127.0.0.1:41221', 'm-1', NULL, NULL, 100000000, 'fb2b95ee9b870f0b71d66a26f6f5cd8c');
INSERT INTO public.verified_runs (run_id, harness, harness_sha256, host, model, base_url, sealed, most_tokens, process) VALUES (2, 'ludus 0.1.0', '13281a81864085cf8d230d5ae48cb45d0afe8ae84f43f56001addc700b08ac69', '127.0.0.1:41221', 'm-1', NULL, NULL, 100000000, 'fb2b95ee9b870f0b71d66a26f6f5cd8c');


--
-- Data for Name: versions; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (1, 1, '1.0.0', 'alice_coin-1.0.0-py3-none-any.whl', 'c656e332b55fbe4fe299c6ad2a7ff2324b0d05796b8800008182a2787c3ccf25', 1494, '852c2b5684cf5388bb8b97f93860ea4ebd2fb774d12b86c66e50ca9b95af13f2', '>=3.11', '{"id":"alice/coin","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"toss","source":"alice_coin:Toss","version":"","description":"","splits":[],"tools":[],"rewardRange":null,"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin

Ünïcode   &amp; ''quotes'', "more"; and a line that begins like a statement:
SET x = 1;
', '{"statement":{"kind":"ludus-package-1","id":"alice/coin","version":"1.0.0","filename":"alice_coin-1.0.0-py3-none-any.whl","sha256":"c656e332b55fbe4fe299c6ad2a7ff2324b0d05796b8800008182a2787c3ccf25","size":1494,"manifestSha256":"e92ab03baaf7e60e26d6cb94707140ce2a1ebe4c9770da0d7836d4ea743af486","cardSha256":"7bbda076afbe628d3aed6fe387bb004aed4da206a28b870fbd85876e01c67985"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"wOUWytmzjJ4sX74uEhdPAZ50wcZKFavYlVzBwwrUSxEnDGpDyXnLPRt1uR/3RPZazesPvjkrHtMPjRLiMuCtCA=="}', NULL, 'alice', '2026-11-28 18:56:47.944587+00', NULL, '2026-11-28 18:56:48.042124+00');
INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (2, 1, '1.1.0', 'alice_coin-1.1.0-py3-none-any.whl', 'f65b956a5d57782d50a8f1a5b9e649c8a93be7f705fe28512815e641fc5401aa', 1493, 'eae9abd1e36cfecc2f6c7d8ee47e52cc53767e17dc470a8eda57151644c18960', '>=3.11', '{"id":"alice/coin","version":"1.1.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"toss","source":"alice_coin:Toss","version":"","description":"","splits":[],"tools":[],"rewardRange":null,"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin

Ünïcode   &amp; ''quotes'', "more"; and a line that begins like a statement:
SET x = 1;
', '{"statement":{"kind":"ludus-package-1","id":"alice/coin","version":"1.1.0","filename":"alice_coin-1.1.0-py3-none-any.whl","sha256":"f65b956a5d57782d50a8f1a5b9e649c8a93be7f705fe28512815e641fc5401aa","size":1493,"manifestSha256":"0a9014c7b6851f800425e593268ee927f34c89f744ab96ae466bdcba43d072b9","cardSha256":"7bbda076afbe628d3aed6fe387bb004aed4da206a28b870fbd85876e01c67985"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"Wx8Yes1uErk80jC1MjsYrkup2oxFRkXUlc9u7VF9mJbZB0EiO59v1KbHLJrk56vNWog4sjZ8miEHjJZPy64xBw=="}', NULL, 'alice', '2026-11-28 18:56:48.014394+00', 'a wrong coin; it''s false', '2026-11-28 18:56:48.042124+00');
INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (3, 2, '1.0.0', 'alice_secret-1.0.0-py3-none-any.whl', '2236a129b684a24024431ff3cc309247346ecfdb356254a6bcd9726a02689e0b', 1519, '7f3c6cc7d0e456168bd931e9f8d79eb023fd51beea5b6c18ac4032e875d15ee7', '>=3.11', '{"id":"alice/secret","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"toss","source":"alice_secret:Toss","version":"","description":"","splits":[],"tools":[],"rewardRange":null,"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"alice/secret","version":"1.0.0","filename":"alice_secret-1.0.0-py3-none-any.whl","sha256":"2236a129b684a24024431ff3cc309247346ecfdb356254a6bcd9726a02689e0b","size":1519,"manifestSha256":"740ab53c3e1d04fa46badd6514a1679caef9a136d9fbb3a202d7a7646de052f6","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"V7fIlS7p8lNXj1dhmRq8kZN3bcexeSSiJmRjaWmJsKczJ0rb2OUYOXoaR21+Ds0BrPHT5wgEJc9v3i/L4UIRDQ=="}', NULL, 'alice', '2026-11-28 18:56:48.224537+00', NULL, '2026-11-28 18:56:48.224537+00');
INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (4, 3, '1.0.0', 'root_locks-1.0.0-py3-none-any.whl', '91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d', 1601, '48935d96b5d398c203392af82ad87feb0561ffa65d3b400a82add2bf1c96a0d1', '>=3.11', '{"id":"root/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"locks","source":"root_locks:Locks","version":"1.0","description":"","splits":[{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"root/locks","version":"1.0.0","filename":"root_locks-1.0.0-py3-none-any.whl","sha256":"91390c924a85fbd4ab9e3db5a749335aacb264195b915bac4105569233e1a63d","size":1601,"manifestSha256":"bc44ae808bba1bdf0ab220f3188416c398563c3a877aa7a23d28898b000d2687","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"KOxYUmAl792sbdKOiLHnlL6gUoulE31z5Y7ZEu9ETHa1isj3wqVrX/Mt96Ajs+qY5Eph9DnikYzqxuqqP1KFCg=="}', NULL, 'root', '2026-11-28 18:57:02.437812+00', NULL, '2026-11-28 18:57:02.437812+00');
INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (5, 4, '1.0.0', 'root_others-1.0.0-py3-none-any.whl', 'c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb', 1618, '068e2669b583b1e245be07bdf59137dfbfd030d160a38d125aacb71f33704e62', '>=3.11', '{"id":"root/others","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"locks","source":"root_others:Locks","version":"1.0","description":"","splits":[{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"root/others","version":"1.0.0","filename":"root_others-1.0.0-py3-none-any.whl","sha256":"c15ef2f76d8d0c61800e83cf42e270bd62e778bca5b8f654d4e0e6be71f6dbbb","size":1618,"manifestSha256":"6582507cd47d8b490952ad5b3a2aca8f8cb6b362047382d153df7a336e3e351d","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"rzI8LXIxmPVYAxXHw6/UwU4sB7fTkolJj0BvO27KzoCfHoR4EAVGY+RUx1v/N3oZTkjYQFqrSqXfyp/VHnQgAg=="}', NULL, 'root', '2026-11-28 18:57:11.948473+00', NULL, '2026-11-28 18:57:11.948473+00');
INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (6, 5, '1.0.0', 'ada_locks-1.0.0-py3-none-any.whl', 'a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205', 1484, '5be1b975ea036c41df7e98a39302186d3b1964ce0dcebcef776a5dac95921c35', '>=3.11', '{"id":"ada/locks","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"locks","source":"ada_locks:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":4},{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"debts","source":"ada_locks:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":4},{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"ada/locks","version":"1.0.0","filename":"ada_locks-1.0.0-py3-none-any.whl","sha256":"a613ce22af9dea74e6b5595e5b85996ac7ae30965eaf54bf44dd7c936dcd6205","size":1484,"manifestSha256":"e0c8e72a30f049719d60de77c44985666982313d0adaf09d605b47e2a1864fd8","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"WPQuPfXHRGYO3UwA6WVk2cijUblDW4AHXj8oSjmsU9peEK+E1pg52GNtIpGwGB8CG7gQx9Loafe46upVk5v3Dw=="}', NULL, 'ada', '2026-11-28 18:57:23.380637+00', NULL, '2026-11-28 18:57:23.380637+00');
INSERT INTO public.versions (id, package_id, version, filename, sha256, size, metadata_sha256, requires_python, manifest, card, signed, validation, uploaded_by, uploaded_at, yanked, changed_at) VALUES (7, 6, '1.0.0', 'ada_games-1.0.0-py3-none-any.whl', '8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288', 1505, 'e14a574aac8e2a67a56bbbb9e265224c68dc5c6d97224e1d1d71090d2382bc1e', '>=3.11', '{"id":"ada/games","version":"1.0.0","description":"A coin.","license":"","tags":["coin"],"environments":[{"name":"auction","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":3},{"name":"test","type":"test","count":30}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"duel","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":3},{"name":"test","type":"test","count":30}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"locks","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":4},{"name":"test","type":"test","count":40}],"tools":[],"rewardRange":[0.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null},{"name":"melee","source":"ada_games:Toss","version":"1.0","description":"","splits":[{"name":"train","type":"train","count":3},{"name":"test","type":"test","count":30}],"tools":[],"rewardRange":[-1.0,1.0],"seedable":null,"gradable":null,"forkable":null,"groupScoring":null,"durability":null}],"resources":{"cpus":null,"memoryMb":null,"diskMb":null,"gpus":null},"secrets":[],"network":[],"citation":"","provenance":{"repository":null,"commit":null,"dirty":false}}', '# Coin
', '{"statement":{"kind":"ludus-package-1","id":"ada/games","version":"1.0.0","filename":"ada_games-1.0.0-py3-none-any.whl","sha256":"8aff45dcd4d7ad330e762abc443296c057fcca004efeb9020e3431c8194ea288","size":1505,"manifestSha256":"e6ea38084e3ea19baa56347603c109976fa9455abba4731d89e8952ab07b62b1","cardSha256":"89930dbc98f326d1c0ebec59b7e934ff8b9458709c6153a13001d7a14eb99342"},"key":"ed25519:jikgVqIKACNAvd5IiYYKMnR7FW9pJWo0JItvhrMz43Y=","signature":"g82Sr6X6Q5aGH3pTbMo1p/yt/V7b2dV61cUhEbRI1KijRx2i9T/HQaNJvjU5YkLzD2YPBJ9ydeOzXfeOVCsfBw=="}', NULL, 'ada', '2026-11-28 18:57:25.064433+00', NULL, '2026-11-28 18:57:25.064433+00');


--
-- Name: access_tokens_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.access_tokens_id_seq', 4, false);


--
-- Name: account_identities_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.account_identities_id_seq', 2, false);


--
-- Name: accounts_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.accounts_id_seq', 6, false);


--
-- Name: audit_events_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.audit_events_id_seq', 26, false);


--
-- Name: match_boards_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.match_boards_id_seq', 3, false);


--
-- Name: match_entrants_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.match_entrants_id_seq', 8, false);


--
-- Name: match_log_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.match_log_id_seq', 2, false);


--
-- Name: matches_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.matches_id_seq', 5, false);


--
-- Name: organizations_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.organizations_id_seq', 2, false);


--
-- Name: owners_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.owners_id_seq', 8, false);


--
-- Name: packages_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.packages_id_seq', 7, false);


--
-- Name: result_boards_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.result_boards_id_seq', 7, false);


--
-- Name: result_lines_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.result_lines_id_seq', 6, false);


--
-- Name: result_log_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.result_log_id_seq', 2, false);


--
-- Name: result_runs_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.result_runs_id_seq', 8, false);


--
-- Name: training_runs_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.training_runs_id_seq', 2, false);


--
-- Name: versions_id_seq; Type: SEQUENCE SET; Schema: public; Owner: -
--

SELECT pg_catalog.setval('public.versions_id_seq', 8, false);


--
-- Name: access_tokens access_tokens_digest_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.access_tokens
    ADD CONSTRAINT access_tokens_digest_key UNIQUE (digest);


--
-- Name: access_tokens access_tokens_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.access_tokens
    ADD CONSTRAINT access_tokens_pkey PRIMARY KEY (id);


--
-- Name: account_identities account_identities_issuer_subject_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_identities
    ADD CONSTRAINT account_identities_issuer_subject_key UNIQUE (issuer, subject);


--
-- Name: account_identities account_identities_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_identities
    ADD CONSTRAINT account_identities_pkey PRIMARY KEY (id);


--
-- Name: account_sessions account_sessions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_sessions
    ADD CONSTRAINT account_sessions_pkey PRIMARY KEY (digest);


--
-- Name: accounts accounts_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_name_key UNIQUE (name);


--
-- Name: accounts accounts_owner_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_owner_id_key UNIQUE (owner_id);


--
-- Name: accounts accounts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (id);


--
-- Name: alembic_version alembic_version_pkc; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);


--
-- Name: audit_events audit_events_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.audit_events
    ADD CONSTRAINT audit_events_pkey PRIMARY KEY (id);


--
-- Name: device_sign_ins device_sign_ins_code_digest_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_sign_ins
    ADD CONSTRAINT device_sign_ins_code_digest_key UNIQUE (code_digest);


--
-- Name: device_sign_ins device_sign_ins_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_sign_ins
    ADD CONSTRAINT device_sign_ins_pkey PRIMARY KEY (digest);


--
-- Name: hub_processes hub_processes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.hub_processes
    ADD CONSTRAINT hub_processes_pkey PRIMARY KEY (id);


--
-- Name: invitations invitations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.invitations
    ADD CONSTRAINT invitations_pkey PRIMARY KEY (digest);


--
-- Name: kept_rollout_parts kept_rollout_parts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kept_rollout_parts
    ADD CONSTRAINT kept_rollout_parts_pkey PRIMARY KEY (file_id, number);


--
-- Name: kept_rollouts kept_rollouts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kept_rollouts
    ADD CONSTRAINT kept_rollouts_pkey PRIMARY KEY (id);


--
-- Name: maintainers maintainers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.maintainers
    ADD CONSTRAINT maintainers_pkey PRIMARY KEY (package_id, principal);


--
-- Name: match_boards match_boards_package_version_environment_split_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_boards
    ADD CONSTRAINT match_boards_package_version_environment_split_key UNIQUE (package, version, environment, split);


--
-- Name: match_boards match_boards_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_boards
    ADD CONSTRAINT match_boards_pkey PRIMARY KEY (id);


--
-- Name: match_entrants match_entrants_board_id_principal_model_harness_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_entrants
    ADD CONSTRAINT match_entrants_board_id_principal_model_harness_key UNIQUE (board_id, principal, model, harness);


--
-- Name: match_entrants match_entrants_key_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_entrants
    ADD CONSTRAINT match_entrants_key_key UNIQUE (key);


--
-- Name: match_entrants match_entrants_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_entrants
    ADD CONSTRAINT match_entrants_pkey PRIMARY KEY (id);


--
-- Name: match_log match_log_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_log
    ADD CONSTRAINT match_log_pkey PRIMARY KEY (id);


--
-- Name: matches matches_board_id_number_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches
    ADD CONSTRAINT matches_board_id_number_key UNIQUE (board_id, number);


--
-- Name: matches matches_key_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches
    ADD CONSTRAINT matches_key_key UNIQUE (key);


--
-- Name: matches matches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches
    ADD CONSTRAINT matches_pkey PRIMARY KEY (id);


--
-- Name: organization_invitations organization_invitations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organization_invitations
    ADD CONSTRAINT organization_invitations_pkey PRIMARY KEY (organization_id, name);


--
-- Name: organization_members organization_members_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organization_members
    ADD CONSTRAINT organization_members_pkey PRIMARY KEY (organization_id, account_id);


--
-- Name: organizations organizations_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_name_key UNIQUE (name);


--
-- Name: organizations organizations_owner_id_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_owner_id_key UNIQUE (owner_id);


--
-- Name: organizations organizations_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_pkey PRIMARY KEY (id);


--
-- Name: owners owners_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owners
    ADD CONSTRAINT owners_name_key UNIQUE (name);


--
-- Name: owners owners_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owners
    ADD CONSTRAINT owners_pkey PRIMARY KEY (id);


--
-- Name: owners owners_skeleton_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.owners
    ADD CONSTRAINT owners_skeleton_key UNIQUE (skeleton);


--
-- Name: package_search package_search_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.package_search
    ADD CONSTRAINT package_search_pkey PRIMARY KEY (package_id);


--
-- Name: package_tags package_tags_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.package_tags
    ADD CONSTRAINT package_tags_pkey PRIMARY KEY (tag, package_id);


--
-- Name: packages packages_distribution_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.packages
    ADD CONSTRAINT packages_distribution_key UNIQUE (distribution);


--
-- Name: packages packages_owner_id_name_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.packages
    ADD CONSTRAINT packages_owner_id_name_key UNIQUE (owner_id, name);


--
-- Name: packages packages_owner_id_skeleton_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.packages
    ADD CONSTRAINT packages_owner_id_skeleton_key UNIQUE (owner_id, skeleton);


--
-- Name: packages packages_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.packages
    ADD CONSTRAINT packages_pkey PRIMARY KEY (id);


--
-- Name: pending_sign_ins pending_sign_ins_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pending_sign_ins
    ADD CONSTRAINT pending_sign_ins_pkey PRIMARY KEY (digest);


--
-- Name: publisher_keys publisher_keys_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.publisher_keys
    ADD CONSTRAINT publisher_keys_pkey PRIMARY KEY (owner_id, key);


--
-- Name: rate_counts rate_counts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.rate_counts
    ADD CONSTRAINT rate_counts_pkey PRIMARY KEY (key, period);


--
-- Name: readers readers_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.readers
    ADD CONSTRAINT readers_pkey PRIMARY KEY (package_id, principal);


--
-- Name: result_boards result_boards_package_version_environment_split_level_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_boards
    ADD CONSTRAINT result_boards_package_version_environment_split_level_key UNIQUE (package, version, environment, split, level);


--
-- Name: result_boards result_boards_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_boards
    ADD CONSTRAINT result_boards_pkey PRIMARY KEY (id);


--
-- Name: result_episodes result_episodes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_episodes
    ADD CONSTRAINT result_episodes_pkey PRIMARY KEY (run_id, place);


--
-- Name: result_lines result_lines_board_id_principal_model_harness_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_lines
    ADD CONSTRAINT result_lines_board_id_principal_model_harness_key UNIQUE (board_id, principal, model, harness);


--
-- Name: result_lines result_lines_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_lines
    ADD CONSTRAINT result_lines_pkey PRIMARY KEY (id);


--
-- Name: result_log result_log_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_log
    ADD CONSTRAINT result_log_pkey PRIMARY KEY (id);


--
-- Name: result_runs result_runs_board_id_digest_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_runs
    ADD CONSTRAINT result_runs_board_id_digest_key UNIQUE (board_id, digest);


--
-- Name: result_runs result_runs_board_id_principal_number_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_runs
    ADD CONSTRAINT result_runs_board_id_principal_number_key UNIQUE (board_id, principal, number);


--
-- Name: result_runs result_runs_key_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_runs
    ADD CONSTRAINT result_runs_key_key UNIQUE (key);


--
-- Name: result_runs result_runs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_runs
    ADD CONSTRAINT result_runs_pkey PRIMARY KEY (id);


--
-- Name: training_batches training_batches_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_batches
    ADD CONSTRAINT training_batches_pkey PRIMARY KEY (run_id, number);


--
-- Name: training_rollouts training_rollouts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_rollouts
    ADD CONSTRAINT training_rollouts_pkey PRIMARY KEY (run_id, number);


--
-- Name: training_rollouts training_rollouts_run_id_digest_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_rollouts
    ADD CONSTRAINT training_rollouts_run_id_digest_key UNIQUE (run_id, digest);


--
-- Name: training_runs training_runs_key_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_runs
    ADD CONSTRAINT training_runs_key_key UNIQUE (key);


--
-- Name: training_runs training_runs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_runs
    ADD CONSTRAINT training_runs_pkey PRIMARY KEY (id);


--
-- Name: training_runs training_runs_principal_sender_key_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_runs
    ADD CONSTRAINT training_runs_principal_sender_key_key UNIQUE (principal, sender_key);


--
-- Name: verified_attempts verified_attempts_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_attempts
    ADD CONSTRAINT verified_attempts_pkey PRIMARY KEY (run_id, place, attempt);


--
-- Name: verified_calls verified_calls_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_calls
    ADD CONSTRAINT verified_calls_pkey PRIMARY KEY (run_id, place, attempt, number);


--
-- Name: verified_runs verified_runs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_runs
    ADD CONSTRAINT verified_runs_pkey PRIMARY KEY (run_id);


--
-- Name: versions versions_filename_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_filename_key UNIQUE (filename);


--
-- Name: versions versions_package_id_version_key; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_package_id_version_key UNIQUE (package_id, version);


--
-- Name: versions versions_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_pkey PRIMARY KEY (id);


--
-- Name: ix_access_tokens_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_access_tokens_account_id ON public.access_tokens USING btree (account_id);


--
-- Name: ix_account_identities_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_account_identities_account_id ON public.account_identities USING btree (account_id);


--
-- Name: ix_account_sessions_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_account_sessions_account_id ON public.account_sessions USING btree (account_id);


--
-- Name: ix_audit_events_account; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_audit_events_account ON public.audit_events USING btree (account);


--
-- Name: ix_audit_events_actor; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_audit_events_actor ON public.audit_events USING btree (actor);


--
-- Name: ix_device_sign_ins_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_device_sign_ins_account_id ON public.device_sign_ins USING btree (account_id);


--
-- Name: ix_device_sign_ins_expires_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_device_sign_ins_expires_at ON public.device_sign_ins USING btree (expires_at);


--
-- Name: ix_kept_rollouts_owner; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_kept_rollouts_owner ON public.kept_rollouts USING btree (owner, kept_at);


--
-- Name: ix_match_entrants_principal; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_match_entrants_principal ON public.match_entrants USING btree (principal, state);


--
-- Name: ix_match_entrants_rating; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_match_entrants_rating ON public.match_entrants USING btree (board_id, component, rating);


--
-- Name: ix_match_entrants_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_match_entrants_state ON public.match_entrants USING btree (state, deadline);


--
-- Name: ix_matches_first; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_matches_first ON public.matches USING btree (first_id, state);


--
-- Name: ix_matches_second; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_matches_second ON public.matches USING btree (second_id, state);


--
-- Name: ix_matches_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_matches_state ON public.matches USING btree (state);


--
-- Name: ix_organization_invitations_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_organization_invitations_account_id ON public.organization_invitations USING btree (account_id);


--
-- Name: ix_organization_members_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_organization_members_account_id ON public.organization_members USING btree (account_id);


--
-- Name: ix_package_tags_package_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_package_tags_package_id ON public.package_tags USING btree (package_id);


--
-- Name: ix_packages_catalog; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_packages_catalog ON public.packages USING btree (updated_at, id, private);


--
-- Name: ix_packages_owner; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_packages_owner ON public.packages USING btree (owner);


--
-- Name: ix_packages_private; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_packages_private ON public.packages USING btree (id) WHERE private;


--
-- Name: ix_pending_sign_ins_account_id; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_pending_sign_ins_account_id ON public.pending_sign_ins USING btree (account_id);


--
-- Name: ix_pending_sign_ins_expires_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_pending_sign_ins_expires_at ON public.pending_sign_ins USING btree (expires_at);


--
-- Name: ix_rate_counts_expires_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_rate_counts_expires_at ON public.rate_counts USING btree (expires_at);


--
-- Name: ix_result_lines_mean; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_result_lines_mean ON public.result_lines USING btree (board_id, mean);


--
-- Name: ix_result_runs_principal; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_result_runs_principal ON public.result_runs USING btree (principal, state);


--
-- Name: ix_result_runs_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_result_runs_state ON public.result_runs USING btree (state, deadline);


--
-- Name: ix_training_runs_principal; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_training_runs_principal ON public.training_runs USING btree (principal, id);


--
-- Name: ix_training_runs_public; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_training_runs_public ON public.training_runs USING btree (public, id);


--
-- Name: ix_versions_changed_at; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_versions_changed_at ON public.versions USING btree (changed_at);


--
-- Name: ix_versions_sha256; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX ix_versions_sha256 ON public.versions USING btree (sha256);


--
-- Name: package_search_document; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX package_search_document ON public.package_search USING gin (document) WITH (fastupdate=off);


--
-- Name: access_tokens access_tokens_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.access_tokens
    ADD CONSTRAINT access_tokens_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: account_identities account_identities_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_identities
    ADD CONSTRAINT account_identities_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: account_sessions account_sessions_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.account_sessions
    ADD CONSTRAINT account_sessions_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: accounts accounts_owner_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_owner_id_fkey FOREIGN KEY (owner_id) REFERENCES public.owners(id);


--
-- Name: device_sign_ins device_sign_ins_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.device_sign_ins
    ADD CONSTRAINT device_sign_ins_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: kept_rollout_parts kept_rollout_parts_file_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.kept_rollout_parts
    ADD CONSTRAINT kept_rollout_parts_file_id_fkey FOREIGN KEY (file_id) REFERENCES public.kept_rollouts(id);


--
-- Name: maintainers maintainers_package_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.maintainers
    ADD CONSTRAINT maintainers_package_id_fkey FOREIGN KEY (package_id) REFERENCES public.packages(id);


--
-- Name: match_entrants match_entrants_board_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_entrants
    ADD CONSTRAINT match_entrants_board_id_fkey FOREIGN KEY (board_id) REFERENCES public.match_boards(id);


--
-- Name: match_log match_log_entrant_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.match_log
    ADD CONSTRAINT match_log_entrant_id_fkey FOREIGN KEY (entrant_id) REFERENCES public.match_entrants(id);


--
-- Name: matches matches_board_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches
    ADD CONSTRAINT matches_board_id_fkey FOREIGN KEY (board_id) REFERENCES public.match_boards(id);


--
-- Name: matches matches_first_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches
    ADD CONSTRAINT matches_first_id_fkey FOREIGN KEY (first_id) REFERENCES public.match_entrants(id);


--
-- Name: matches matches_second_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.matches
    ADD CONSTRAINT matches_second_id_fkey FOREIGN KEY (second_id) REFERENCES public.match_entrants(id);


--
-- Name: organization_invitations organization_invitations_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organization_invitations
    ADD CONSTRAINT organization_invitations_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: organization_invitations organization_invitations_organization_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organization_invitations
    ADD CONSTRAINT organization_invitations_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES public.organizations(id);


--
-- Name: organization_members organization_members_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organization_members
    ADD CONSTRAINT organization_members_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: organization_members organization_members_organization_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organization_members
    ADD CONSTRAINT organization_members_organization_id_fkey FOREIGN KEY (organization_id) REFERENCES public.organizations(id);


--
-- Name: organizations organizations_owner_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.organizations
    ADD CONSTRAINT organizations_owner_id_fkey FOREIGN KEY (owner_id) REFERENCES public.owners(id);


--
-- Name: package_search package_search_package_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.package_search
    ADD CONSTRAINT package_search_package_id_fkey FOREIGN KEY (package_id) REFERENCES public.packages(id);


--
-- Name: package_tags package_tags_package_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.package_tags
    ADD CONSTRAINT package_tags_package_id_fkey FOREIGN KEY (package_id) REFERENCES public.packages(id);


--
-- Name: packages packages_owner_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.packages
    ADD CONSTRAINT packages_owner_id_fkey FOREIGN KEY (owner_id) REFERENCES public.owners(id);


--
-- Name: pending_sign_ins pending_sign_ins_account_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.pending_sign_ins
    ADD CONSTRAINT pending_sign_ins_account_id_fkey FOREIGN KEY (account_id) REFERENCES public.accounts(id);


--
-- Name: publisher_keys publisher_keys_owner_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.publisher_keys
    ADD CONSTRAINT publisher_keys_owner_id_fkey FOREIGN KEY (owner_id) REFERENCES public.owners(id);


--
-- Name: readers readers_package_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.readers
    ADD CONSTRAINT readers_package_id_fkey FOREIGN KEY (package_id) REFERENCES public.packages(id);


--
-- Name: result_episodes result_episodes_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_episodes
    ADD CONSTRAINT result_episodes_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.result_runs(id);


--
-- Name: result_lines result_lines_board_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_lines
    ADD CONSTRAINT result_lines_board_id_fkey FOREIGN KEY (board_id) REFERENCES public.result_boards(id);


--
-- Name: result_log result_log_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_log
    ADD CONSTRAINT result_log_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.result_runs(id);


--
-- Name: result_runs result_runs_board_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.result_runs
    ADD CONSTRAINT result_runs_board_id_fkey FOREIGN KEY (board_id) REFERENCES public.result_boards(id);


--
-- Name: training_batches training_batches_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_batches
    ADD CONSTRAINT training_batches_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.training_runs(id);


--
-- Name: training_rollouts training_rollouts_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.training_rollouts
    ADD CONSTRAINT training_rollouts_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.training_runs(id);


--
-- Name: verified_attempts verified_attempts_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_attempts
    ADD CONSTRAINT verified_attempts_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.result_runs(id);


--
-- Name: verified_calls verified_calls_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_calls
    ADD CONSTRAINT verified_calls_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.result_runs(id);


--
-- Name: verified_runs verified_runs_run_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.verified_runs
    ADD CONSTRAINT verified_runs_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.result_runs(id);


--
-- Name: versions versions_package_id_fkey; Type: FK CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.versions
    ADD CONSTRAINT versions_package_id_fkey FOREIGN KEY (package_id) REFERENCES public.packages(id);


--
--


