-- The five transactions of TPC-C (clauses 2.4 to 2.8), each one function, called as one statement and so one transaction.

CREATE FUNCTION tpcc_new_order(p_w int, p_d int, p_c int, p_items int[], p_suppliers int[], p_quantities int[])
RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    v_w_tax numeric; v_d_tax numeric; v_o int; v_discount numeric; v_last varchar; v_credit char(2);
    v_lines int := array_length(p_items, 1); v_local int := 1; v_supplier int;
    v_price numeric; v_name varchar; v_data varchar; v_info char(24); v_stock_data varchar; v_left int;
    v_amount numeric; v_total numeric := 0; v_generic int := 0;
BEGIN
    SELECT w_tax INTO STRICT v_w_tax FROM warehouse WHERE w_id = p_w;
    UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = p_w AND d_id = p_d
        RETURNING d_next_o_id - 1, d_tax INTO STRICT v_o, v_d_tax;
    SELECT c_discount, c_last, c_credit INTO STRICT v_discount, v_last, v_credit
        FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = p_c;
    FOREACH v_supplier IN ARRAY p_suppliers LOOP
        IF v_supplier <> p_w THEN v_local := 0; END IF;
    END LOOP;
    INSERT INTO orders VALUES (v_o, p_d, p_w, p_c, clock_timestamp(), NULL, v_lines, v_local);
    INSERT INTO new_order VALUES (v_o, p_d, p_w);
    FOR v_line IN 1 .. v_lines LOOP
        SELECT i_price, i_name, i_data INTO v_price, v_name, v_data FROM item WHERE i_id = p_items[v_line];
        IF NOT FOUND THEN
            RAISE EXCEPTION 'Item number is not valid' USING ERRCODE = 'QU001';
        END IF;
        UPDATE stock SET
            s_quantity = CASE WHEN s_quantity >= p_quantities[v_line] + 10 THEN s_quantity - p_quantities[v_line]
                ELSE s_quantity - p_quantities[v_line] + 91 END,
            s_ytd = s_ytd + p_quantities[v_line],
            s_order_cnt = s_order_cnt + 1,
            s_remote_cnt = s_remote_cnt + CASE WHEN p_suppliers[v_line] = p_w THEN 0 ELSE 1 END
            WHERE s_w_id = p_suppliers[v_line] AND s_i_id = p_items[v_line]
            RETURNING s_quantity, s_data, CASE p_d WHEN 1 THEN s_dist_01 WHEN 2 THEN s_dist_02 WHEN 3 THEN s_dist_03
                WHEN 4 THEN s_dist_04 WHEN 5 THEN s_dist_05 WHEN 6 THEN s_dist_06 WHEN 7 THEN s_dist_07
                WHEN 8 THEN s_dist_08 WHEN 9 THEN s_dist_09 ELSE s_dist_10 END
            INTO STRICT v_left, v_stock_data, v_info;
        v_amount := p_quantities[v_line] * v_price;
        v_total := v_total + v_amount;
        -- The terminal shows B for a brand where both texts hold the word, else G.
        IF position('ORIGINAL' IN v_data) = 0 OR position('ORIGINAL' IN v_stock_data) = 0 THEN
            v_generic := v_generic + 1;
        END IF;
        INSERT INTO order_line VALUES
            (v_o, p_d, p_w, v_line, p_items[v_line], p_suppliers[v_line], NULL, p_quantities[v_line], v_amount, v_info);
    END LOOP;
    RETURN v_total * (1 - v_discount) * (1 + v_w_tax + v_d_tax);
END $$;

-- The customer in the middle of those with this name, by first name (clause 2.5.2.2).
CREATE FUNCTION tpcc_by_name(p_w int, p_d int, p_last varchar) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_c int;
BEGIN
    SELECT (array_agg(c_id ORDER BY c_first))[(count(*) + 1) / 2] INTO v_c
        FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_last = p_last;
    IF v_c IS NULL THEN
        RAISE EXCEPTION 'nobody in district % of warehouse % is called %', p_d, p_w, p_last;
    END IF;
    RETURN v_c;
END $$;

CREATE FUNCTION tpcc_payment(p_w int, p_d int, p_c_w int, p_c_d int, p_c int, p_last varchar, p_cents bigint)
RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    v_amount numeric := round(p_cents / 100.0, 2); v_w_name varchar; v_d_name varchar; v_c int := p_c; v_balance numeric;
BEGIN
    UPDATE warehouse SET w_ytd = w_ytd + v_amount WHERE w_id = p_w RETURNING w_name INTO STRICT v_w_name;
    UPDATE district SET d_ytd = d_ytd + v_amount WHERE d_w_id = p_w AND d_id = p_d
        RETURNING d_name INTO STRICT v_d_name;
    IF v_c = 0 THEN
        v_c := tpcc_by_name(p_c_w, p_c_d, p_last);
    END IF;
    UPDATE customer SET
        c_balance = c_balance - v_amount,
        c_ytd_payment = c_ytd_payment + v_amount,
        c_payment_cnt = c_payment_cnt + 1,
        c_data = CASE WHEN c_credit = 'BC'
            THEN left(format('%s %s %s %s %s %s|%s', v_c, p_c_d, p_c_w, p_d, p_w, v_amount, c_data), 500)
            ELSE c_data END
        WHERE c_w_id = p_c_w AND c_d_id = p_c_d AND c_id = v_c RETURNING c_balance INTO STRICT v_balance;
    INSERT INTO history VALUES
        (v_c, p_c_d, p_c_w, p_d, p_w, clock_timestamp(), v_amount, v_w_name || '    ' || v_d_name);
    RETURN v_balance;
END $$;

CREATE FUNCTION tpcc_order_status(p_w int, p_d int, p_c int, p_last varchar) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_c int := p_c; v_balance numeric; v_o int; v_carrier int; v_entry timestamp; v_lines bigint;
BEGIN
    IF v_c = 0 THEN
        v_c := tpcc_by_name(p_w, p_d, p_last);
    END IF;
    SELECT c_balance INTO STRICT v_balance FROM customer WHERE c_w_id = p_w AND c_d_id = p_d AND c_id = v_c;
    SELECT o_id, o_carrier_id, o_entry_d INTO STRICT v_o, v_carrier, v_entry FROM orders
        WHERE o_w_id = p_w AND o_d_id = p_d AND o_c_id = v_c ORDER BY o_id DESC LIMIT 1;
    SELECT count(ol_i_id + ol_supply_w_id + ol_quantity + ol_amount) INTO v_lines FROM order_line
        WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id = v_o;
    RETURN v_lines;
END $$;

CREATE FUNCTION tpcc_delivery(p_w int, p_carrier int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
    v_o int; v_c int; v_sum numeric; v_delivered int := 0;
BEGIN
    FOR v_d IN 1 .. 10 LOOP
        -- Another delivery may take the oldest order first; then the next one is the oldest.
        LOOP
            SELECT min(no_o_id) INTO v_o FROM new_order WHERE no_w_id = p_w AND no_d_id = v_d;
            EXIT WHEN v_o IS NULL;
            DELETE FROM new_order WHERE no_w_id = p_w AND no_d_id = v_d AND no_o_id = v_o;
            EXIT WHEN FOUND;
        END LOOP;
        CONTINUE WHEN v_o IS NULL;
        UPDATE orders SET o_carrier_id = p_carrier WHERE o_w_id = p_w AND o_d_id = v_d AND o_id = v_o
            RETURNING o_c_id INTO STRICT v_c;
        WITH delivered AS (
            UPDATE order_line SET ol_delivery_d = clock_timestamp()
                WHERE ol_w_id = p_w AND ol_d_id = v_d AND ol_o_id = v_o RETURNING ol_amount)
            SELECT sum(ol_amount) INTO STRICT v_sum FROM delivered;
        UPDATE customer SET c_balance = c_balance + v_sum, c_delivery_cnt = c_delivery_cnt + 1
            WHERE c_w_id = p_w AND c_d_id = v_d AND c_id = v_c;
        v_delivered := v_delivered + 1;
    END LOOP;
    RETURN v_delivered;
END $$;

CREATE FUNCTION tpcc_stock_level(p_w int, p_d int, p_threshold int) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    v_next int; v_low bigint;
BEGIN
    SELECT d_next_o_id INTO STRICT v_next FROM district WHERE d_w_id = p_w AND d_id = p_d;
    SELECT count(DISTINCT s_i_id) INTO v_low FROM order_line JOIN stock ON s_w_id = p_w AND s_i_id = ol_i_id
        WHERE ol_w_id = p_w AND ol_d_id = p_d AND ol_o_id >= v_next - 20 AND ol_o_id < v_next
        AND s_quantity < p_threshold;
    RETURN v_low;
END $$;
