module splitplane.invalid/tests/images

go 1.26.0
