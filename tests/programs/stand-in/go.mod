module bayplan.dev/tests/critest/programs

go 1.21
