# SPDX-License-Identifier: Apache-2.0
"""The advice for common causes of a failure, chosen by the last error of the process or by how it ended."""

from __future__ import annotations

from paddle_cluster.config.script_habits import MEANT
from paddle_cluster.system.installation import COMMAND
from paddle_node.contract.classes import regex

_CONVERT = f"`2to3 -w -n train.py` rewrites most of a script for Python 2 (`{COMMAND} help v2-api`)"

REMEDIES = tuple(
    (regex(pattern), text)
    for pattern, text in (
        (
            r"^hung: no step for",
            "its stacks show what it is waiting for; if a step can take that long, raise STEP_TIMEOUT_S in conf.py",
        ),
        # errors of scripts written for Python 2
        (
            r"^SyntaxError: Missing parentheses in call to 'print'",
            f"print is a function in Python 3: print(x); {_CONVERT}",
        ),
        (
            r"^SyntaxError: (?:leading zeros in decimal integer|multiple exception types must be parenthesized"
            r"|(?:Function|Lambda expression) parameters cannot be parenthesized|Missing parentheses in call to 'exec')"
            r"|^TypeError: unsupported operand type\(s\) for >>: 'builtin_function_or_method'"
            r"|^AttributeError: .* has no attribute '(?:has_key|iteritems|itervalues|iterkeys|izip|imap|maxint)'",
            f"this line is Python 2 code; {_CONVERT}",
        ),
        (
            r"^TabError: inconsistent use of tabs and spaces",
            "Python 3 does not treat a tab as eight spaces; `expand -t 8 train.py` prints the script without tabs",
        ),
        (
            r"^TypeError: '(?:map|filter|zip|dict_keys|dict_values|dict_items)' object is not subscriptable"
            r"|^TypeError: object of type '(?:map|filter|zip)' has no len\(\)",
            "map, filter, zip, keys, values and items do not return lists in Python 3: use list(map(f, x))",
        ),
        (
            r"^TypeError: write\(\) argument must be str, not bytes",
            'Python 3 must open a file of bytes, such as a pickle, in binary mode: open(path, "wb")',
        ),
        (
            r"^UnicodeDecodeError: 'utf-8' codec|^TypeError: a bytes-like object is required, not 'str'",
            (
                "Python 3 must open a file of bytes, such as a pickle, in binary mode: open(path, "
                '"rb"); load one that Python 2 wrote with encoding="latin1"'
            ),
        ),
        (
            r"^TypeError: 'float' object cannot be interpreted as an integer|must be a whole number, got \d*\.",
            "`/` returns a float in Python 3; use `//` for the whole numbers that sizes and counts need",
        ),
        (
            r"^NameError: name '(xrange|unicode|raw_input|basestring|long|reduce|unichr|execfile|file|cmp)' is not "
            r"defined",
            f"{{0}} exists only in Python 2; Python 3 has range, str, input and int; {_CONVERT}",
        ),
        (
            r"^ModuleNotFoundError: No module named '(cPickle|Queue|StringIO|cStringIO|ConfigParser|urllib2)'",
            (
                "{0} is a Python 2 module; Python 3 has pickle, queue, io, configparser and "
                f"urllib.request; {_CONVERT}"
            ),
        ),
        (
            r"^AttributeError: module 'paddle' has no attribute|^ImportError: cannot import name '\w+' from 'paddle' "
            r"|^ModuleNotFoundError: paddle\.\w+ is not supported: use paddle\.fluid or paddle\.v2"
            r"|^ModuleNotFoundError: No module named 'paddle\.(?!v2|fluid)",
            "the paddle of a job has the interfaces paddle.v2 and paddle.fluid, but not those of PaddlePaddle 2.0 and "
            "newer: write the script with one of these two, or with PyTorch or JAX in --mode=collective",
        ),
        (
            r"^(?:_pickle\.|pickle\.)?UnpicklingError: invalid load key, 'v'",
            "the file is probably a pointer of Git LFS, which begins with 'version': `git lfs pull` fetches it",
        ),
        (
            r"^ModuleNotFoundError: No module named '[\w.]+'; '(\w+)' is not a package"
            r"|^ImportError: cannot import name '.*' from (?:partially initialized module )?'(\w+)' \(.*/\2\.py\b"
            r"|^AttributeError: (?:partially initialized )?module '(\w+)' has no attribute",
            "if the workspace has a file {}.py, it hides the package of that name: rename it",
        ),
        (
            r"^ModuleNotFoundError: No module named '(\w+)\.([\w.]+)'",
            "{0} was found but has no {1}: install a version that has it; if the workspace has a {0}, rename it",
        ),
        (
            r"^ModuleNotFoundError: No module named '([\w.]+)'",
            (
                "the nodes' Python has no {0}. Install it there, name a Python that has it (PYTHON "
                "in conf.py), put it into the workspace, or name its package in requirements.txt and "
                "give --bootstrap"
            ),
        ),
        (
            r"^(?:\w+: )?Distributed package doesn't have NCCL built in|ProcessGroupNCCL is only supported with GPUs",
            'nccl needs GPUs and a torch built with it; on CPUs use init_process_group("gloo")',
        ),
        (
            r"^AssertionError: Torch not compiled with CUDA enabled|has no attribute '_cuda_\w+'"
            r"|^RuntimeError: (?:Found no NVIDIA driver|No CUDA GPUs are available)",
            "the nodes' Python has a torch without CUDA, or the node has no GPU: use torch.device('cpu'), or name a "
            "Python whose torch has CUDA (PYTHON in conf.py)",
        ),
        (
            r"^ValueError: DistributedDataParallel device_ids and output_device",
            "on CPUs, omit device_ids: DistributedDataParallel(model)",
        ),
        (
            r"^ValueError: Default process group has not been initialized",
            'before this line, call torch.distributed.init_process_group("gloo"), or with "nccl" on GPUs, which reads '
            "the launcher's RANK, WORLD_SIZE and MASTER_ADDR",
        ),
        (
            r"^ValueError: Error initializing torch\.distributed using \w+://",
            "call init_process_group without init_method, rank and world_size: it reads the launcher's RANK, "
            "WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
        ),
        (
            r"^RuntimeError: Error\(s\) in loading state_dict for",
            "DistributedDataParallel prefixes names with 'module.': save model.module.state_dict(). Otherwise, the "
            "file belongs to a different model",
        ),
        (
            r"Timed out waiting \d+ms for|Watchdog caught collective operation timeout",
            "a rank did not make this call in time: it was slower, failed, or took another branch. For slow ranks, "
            "raise timeout= of init_process_group",
        ),
        (
            r"^did not answer on its ports within",
            "a Fluid script must run t.get_pserver_program if TRAINING_ROLE is PSERVER "
            f"(`{COMMAND} help fluid-jobs`); for a server that starts slowly, raise READY_TIMEOUT_S in conf.py",
        ),
        (
            r"^paddle\.errors\.ConfigError: pservers: endpoint|Error: '\S+' is not one of the servers: ",
            'pass pservers=os.environ["PADDLE_PSERVERS_IP_PORT_LIST"], which lists the pservers of the job with their '
            "ports; PADDLE_PSERVERS lists addresses without ports",
        ),
        (
            r"error: the following arguments are required: .*--local[-_]rank",
            'the launcher sets the variable LOCAL_RANK instead, as torchrun does: int(os.environ["LOCAL_RANK"])',
        ),
        (
            r"^[\w.]*DistStoreError: (?:Timed out|wait timeout) after",
            "this rank waited for ranks that the job does not have, or that do not call init_process_group: let it "
            "read RANK and WORLD_SIZE, without the arguments rank and world_size",
        ),
        (
            r"^paddle\.errors\.PortBusy: cannot listen on .*Address already in use",
            "a job that started at the same time may have taken the port: start this job again, which then uses "
            "the next free port. Fluid jobs that start together need different values of PADDLE_PORT in conf.py",
        ),
        (
            r"[Aa]ddress already in use.* \(LOCAL_RANK\)$|[Tt]im(?:eout|ed out).* \(LOCAL_RANK\)$",
            "LOCAL_RANK counts within a node, so that each of several nodes has a rank 0: call init_process_group "
            "without rank and world_size, or give rank=int(os.environ['RANK'])",
        ),
        (
            r"^(?:[\w.]*DistNetworkError|OSError): .*[Aa]ddress already in use",
            "use a port that is free on that node; init_process_group without init_method uses MASTER_PORT, which the "
            "launcher chooses. If the script sets ranks itself, only one process can have rank 0: "
            "the launcher starts all processes, so omit mp.spawn, and read RANK and WORLD_SIZE",
        ),
        (
            r"^[\w.]*DistNetworkError: ",
            "the launcher sets MASTER_ADDR and MASTER_PORT: remove the lines of the script that change them",
        ),
        (
            r"^AssertionError: Unknown backend type |: Distributed package doesn't have (?:MPI|UCC|XCCL) built in",
            'most builds of torch have the backends gloo, for CPUs, and nccl, for GPUs: init_process_group("gloo")',
        ),
        *(
            (
                rf"^KeyError: '({name})'",
                f'no job has {{0}}: read os.environ["{ours}"], which the launcher sets',
            )
            for name, ours in MEANT.items()
        ),
        (
            r"^KeyError: '((?:SLURM|OMPI|PMI|PMIX|MPI)_\w+)'",
            "{0} is a variable of another launcher; this one sets RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and "
            "MASTER_PORT, as torchrun does",
        ),
        (
            r"^KeyError: '([A-Z][A-Z0-9_]*)'",
            "if {0} is an environment variable: a job does not have those of your shell; give --env={0}, or "
            "--env={0}=VALUE",
        ),
        (
            r"^RuntimeError: Parent directory (\S+) does not exist",
            'create {0} on the node first: os.makedirs("{0}", exist_ok=True). --keep_as=NAME saves a directory of '
            f"checkpoints between jobs (`{COMMAND} help any-script`)",
        ),
        (
            r"^SyntaxError: (?:\(unicode error\) 'utf-8' codec|Non-UTF-8 code starting)",
            "save the script in UTF-8, or name its encoding in the first line, such as # -*- coding: latin-1 -*-",
        ),
        (
            r"^(?:SyntaxError|IndentationError): ",
            "`python3 -m compileall -q DIRECTORY` checks a workspace before a job; newer syntax needs a newer "
            "Python on the nodes (PYTHON in conf.py)",
        ),
        (
            r"^[\w.]*ProcessExitedException: |^RuntimeError: DataLoader worker",
            "its log shows the error of the child process above. Without one, the child was killed, often for lack of "
            "memory: lower num_workers, prefetch_factor or --nproc_per_node. A script that starts processes must do so "
            'below if __name__ == "__main__":',
        ),
        (
            r"^IndexError: list index out of range \(sys\.argv\)|error: the following arguments are required: ",
            "the script expects an argument that it did not get. Put its arguments after `--`: before it, those that "
            f"{COMMAND} also has, such as --name, do not reach the script. To pass a different value to each role or "
            f"rank, use a shell script, --entry=./run.sh (`{COMMAND} help fluid-jobs`)",
        ),
        (
            r"error: unrecognized arguments: (.*)$",
            "the script does not know {0}, and neither does the launcher, which passes such options on: "
            f"`{COMMAND} run --help` lists those of the launcher, such as --nnodes, --nproc_per_node and --include",
        ),
        (
            r"^TypeError: only 0-dimensional arrays can be converted to Python scalars",
            (
                "numpy 2.5 and newer convert only arrays of rank 0 to numbers: write x.item() for an array of one "
                "element, or install numpy<2.5 on the nodes"
            ),
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(torchrun|mpirun|mpiexec|srun|accelerate)'$",
            "the launcher starts the processes itself: give the script as --entry, and run it without {0}; "
            "--nproc_per_node=N starts N processes on each node",
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '([\w+-]+)'$",
            (
                "if {0} is a program, install it on the nodes or name its directory with "
                "--env=PATH=DIR:/usr/bin:/bin; if it is a file, put it into the workspace: the job "
                "searches its own directory, a copy of the workspace"
            ),
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(~[^']*|\$\{?HOME[^']*)'",
            "Python does not expand {0}: give an absolute path, or use os.path.expandvars(os.path.expanduser(path))",
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(\.\./[^']*)'",
            "{0} is outside the job's directory, a copy of the workspace: move the file into the workspace, or copy it "
            "to every node and name it by its absolute path",
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '((?:\./)?output/[^']*)'",
            "output/ is not sent to the nodes: to read {0}, move it to another directory; to write it, "
            f"create its directory first; to resume, see `{COMMAND} help checkpoints`",
        ),
        (
            r"the directory of parameters ((?:\./)?output/\S+) does not exist"
            r"|--start_pass=\d+ needs ((?:\./)?output/[^,]+),",
            "output/ is not sent to the nodes: copy {0} to another directory of the workspace, such as start/, and "
            "add --init_model_path=start",
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?:\./)?\.env'",
            ".env is not sent to the nodes, because it may contain secrets. The launcher sets its variables for all "
            "processes: read them from os.environ. To send the file itself, give it another name",
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '([^/'][^']*)'",
            (
                "{0} is not in the job's directory on the node, which is a copy of the workspace "
                "without the files that .paddleignore lists: put it there; --dry_run lists the files"
            ),
        ),
        (
            r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(/[^']*)'",
            "{0} must exist on every node, or its directory if the script writes it; name files in the workspace by "
            "paths relative to it",
        ),
        (
            r"^FileExistsError: \[Errno 17\] File exists: '([^']*)'",
            "the launcher, another rank or an earlier run created {0}: if it is a directory, "
            'os.makedirs("{0}", exist_ok=True)',
        ),
        (
            r"^(?:[\w.]*_ArrayMemoryError|MemoryError)\b|DefaultCPUAllocator: can't allocate memory"
            r"|the kernel's out-of-memory killer|for lack of memory$",
            "a smaller batch or fewer processes per node (--nproc_per_node) need less memory",
        ),
        (
            r"^json\.decoder\.JSONDecodeError: ",
            "the text is not JSON, or is empty: print it, or check its file with `python3 -m json.tool FILE`",
        ),
        (
            r"^subprocess\.CalledProcessError: ",
            "the log shows the command's own messages, unless the script captured them: print error.stderr",
        ),
        (
            r"^RecursionError: ",
            "its log shows the calls that repeat: add a condition that ends the recursion",
        ),
        (
            r"^signal 9 \(SIGKILL\)$|\bkilled by signal 9\b",
            (
                "a program outside the job killed it, such as kill -9 or the limits of a container or a "
                "batch system; see its log"
            ),
        ),
        (
            r"^terminate called without an active exception",
            "threads of compiled code, such as PyTorch's, were running when the script ended: call "
            "torch.distributed.destroy_process_group() last. If other ranks were still waiting, they had more batches",
        ),
        (
            r"^signal (?:4|6|7|8|11) \(SIG\w+\)$",
            "compiled code crashed: its log ends with the line of Python that called it. A common cause is a package "
            "built for a different Python or numpy, or for newer CPUs",
        ),
        (
            r"\bop\.preamble\.\w+",
            "ranks gave a collective operation tensors of different shapes or dtypes: print them before the operation",
        ),
        (
            r"Connection closed by peer|Connection reset by peer",
            "another rank ended first: its log shows why. If it reports no error, the ranks made different collective "
            "calls: one under `if rank == 0:`, more batches on this rank, or tensors of different shapes or dtypes",
        ),
        (
            r"^OSError: \[Errno 28\] |^OSError: \[Errno 122\] ",
            (
                "free space on that node, or use a different disk (ROOT_DIR or HOST_SETTINGS in "
                f"conf.py); `{COMMAND} clean` removes earlier jobs"
            ),
        ),
        (
            r"packets of \d+ bytes do not arrive",
            (
                "allow ICMP 'fragmentation needed' messages between the nodes, or set their "
                "interfaces to the smallest MTU of the path: ip link set DEVICE mtu BYTES"
            ),
        ),
        (
            r"no display name and no \$DISPLAY|[Cc]ould not connect to (?:any )?display",
            "nodes have no display: write pictures to output/, with matplotlib.use('Agg') and plt.savefig(PATH)",
        ),
        (
            r"^(?:urllib\.error\.URLError|socket\.gaierror|requests\.\w+\.ConnectionError|httpx\.ConnectError): ",
            "that node cannot reach the host: copy what the script downloads into the workspace, or to every node",
        ),
        (
            r"^OSError: \[Errno 99\] ",
            "the node does not have that address: bind to 0.0.0.0, or to the one in os.environ['POD_IP']",
        ),
        (
            r"^bdb\.BdbQuit",
            "nodes have no terminal for a debugger: remove breakpoint() or pdb.set_trace() from the script",
        ),
        (
            r"^EOFError: EOF when reading a line",
            "standard input is empty on nodes: give the script its input as arguments or in files of the workspace",
        ),
        (
            r"^EOFError: Ran out of input|^RuntimeError: PytorchStreamReader failed",
            "the file is empty or incomplete: only one rank may write it, and others may read it after a barrier; if "
            "it is in the workspace, check it there",
        ),
        (
            r"^could not be started: .*No such file or directory",
            "that node has no such program, or not the interpreter in the first line of the script (#!)",
        ),
        (
            r"^could not be started: .*Permission denied",
            "run `chmod +x` on it, or set ROOT_DIR in conf.py to a directory that is not mounted noexec",
        ),
    )
)
"""Pattern of an error, or of how a process ended -> advice; {} are the pattern's groups. The first match applies."""
